variable "name" {
  description = "Prefix of the names of all resources; also the name of the bucket."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,19}$", var.name))
    error_message = "Use 3 to 20 lower-case letters, digits and hyphens: service accounts are named after it."
  }
}

variable "project" {
  description = "The id of the project."
  type        = string
}

variable "region" {
  description = "The region of the bucket and of everything that reads it."
  type        = string
}

variable "root" {
  description = "The folder of the instance inside the bucket. Its root URL is gs://NAME/ROOT."
  type        = string
  default     = "lake"
}

variable "image" {
  description = "The image of deploy/docker in Artifact Registry. Empty: no service is made."
  type        = string
  default     = ""
}

variable "reader_members" {
  description = "Members that may read the instance, such as serviceAccount:NAME@PROJECT.iam.gserviceaccount.com."
  type        = list(string)
  default     = []
}

variable "spark" {
  description = "Whether to make the account of Spark jobs on serverless Dataproc. It costs nothing while idle."
  type        = bool
  default     = false
}

variable "spark_image" {
  description = "An image of Spark with `pip install 'lakebed[spark]'`, for the jobs."
  type        = string
  default     = ""
}

variable "spark_runtime" {
  description = "A runtime of serverless Dataproc with Spark 4.0 or later."
  type        = string
  default     = "3.0"
}

variable "delete_data" {
  description = "Whether `terraform destroy` may delete the bucket while objects are in it. They are lost."
  type        = bool
  default     = false
}
