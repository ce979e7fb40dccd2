output "instance" {
  description = "The root URL: lakebed --instance URL init"
  value       = "gs://${google_storage_bucket.lake.name}/${var.root}"
}

output "service" {
  description = "The URL of the service, inside the network."
  value       = one(google_cloud_run_v2_service.service[*].uri)
}

output "spark_job" {
  description = "A batch of serverless Dataproc: put the names of table, source and job into it."
  value = var.spark ? templatefile("${path.module}/spark-job.json.tftpl", {
    bucket  = google_storage_bucket.lake.name
    root    = var.root
    runtime = var.spark_runtime
    image   = var.spark_image
    account = google_service_account.spark[0].email
  }) : null
}
