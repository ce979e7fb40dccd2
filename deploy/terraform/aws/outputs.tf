output "instance" {
  description = "The root URL: lakebed --instance URL init"
  value       = "s3://${aws_s3_bucket.lake.bucket}/${var.root}"
}

output "reader_role" {
  description = "The role that readers assume."
  value       = one(aws_iam_role.reader[*].arn)
}

output "cluster" {
  description = "The cluster of the service, for `aws ecs run-task`."
  value       = one(aws_ecs_cluster.lake[*].name)
}

output "spark_job" {
  description = "A job of EMR Serverless: put the names of table, source and job into it."
  value = var.spark ? templatefile("${path.module}/spark-job.json.tftpl", {
    application = aws_emrserverless_application.spark[0].id
    role        = aws_iam_role.spark[0].arn
    bucket      = aws_s3_bucket.lake.bucket
    root        = var.root
  }) : null
}
