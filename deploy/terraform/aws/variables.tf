variable "name" {
  description = "Prefix of the names of all resources; also the name of the bucket."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{2,39}$", var.name))
    error_message = "Use 3 to 40 lower-case letters, digits and hyphens: it becomes the name of a bucket."
  }
}

variable "region" {
  description = "The region of the bucket and of everything that reads it."
  type        = string
}

variable "root" {
  description = "The folder of the instance inside the bucket. Its root URL is s3://NAME/ROOT."
  type        = string
  default     = "lake"
}

variable "image" {
  description = "The image of deploy/docker, with its registry and tag. Empty: no service is made."
  type        = string
  default     = ""
}

variable "vpc_id" {
  description = "The network of the service. It needs an S3 gateway endpoint, or requests are billed as egress by NAT."
  type        = string
  default     = ""
}

variable "subnet_ids" {
  description = "Private subnets of the service, in several zones."
  type        = list(string)
  default     = []
}

variable "client_cidrs" {
  description = "Who may reach the service: address ranges, such as that of the network."
  type        = list(string)
  default     = []
}

variable "services" {
  description = "How many services run. Two go on while one is replaced; any number is safe."
  type        = number
  default     = 2
}

variable "reader_principals" {
  description = "ARNs that may assume the role of readers. Empty: the role is not made."
  type        = list(string)
  default     = []
}

variable "source_bucket_arns" {
  description = "Buckets from which Spark jobs import. They may only be read."
  type        = list(string)
  default     = []
}

variable "spark" {
  description = "Whether to make an EMR Serverless application for imports and large merges. It costs nothing while idle."
  type        = bool
  default     = false
}

variable "spark_release" {
  description = "A release of EMR with Spark 4.0 or later."
  type        = string
  default     = "emr-spark-8.0.0"
}

variable "spark_vcpus_max" {
  description = "The most virtual CPUs that all Spark jobs together may use, with 4 GB of memory each."
  type        = number
  default     = 96
}

variable "delete_data" {
  description = "Whether `terraform destroy` may delete the bucket while objects are in it. They are lost."
  type        = bool
  default     = false
}
