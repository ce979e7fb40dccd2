locals {
  spark = var.spark ? 1 : 0
}

resource "aws_emrserverless_application" "spark" {
  count         = local.spark
  name          = var.name
  release_label = var.spark_release
  type          = "spark"

  maximum_capacity {
    cpu    = "${var.spark_vcpus_max} vCPU"
    memory = "${4 * var.spark_vcpus_max} GB"
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 5
  }
}

data "aws_iam_policy_document" "spark_tasks" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["emr-serverless.amazonaws.com"]
    }
  }
}

# Beside the instance: the packed environment and the application below spark/, and reports below reports/.
data "aws_iam_policy_document" "spark" {
  statement {
    actions   = ["s3:GetObject"]
    resources = concat(["${aws_s3_bucket.lake.arn}/spark/*"], [for arn in var.source_bucket_arns : "${arn}/*"])
  }

  statement {
    actions   = ["s3:PutObject"]
    resources = ["${aws_s3_bucket.lake.arn}/reports/*"]
  }

  dynamic "statement" {
    for_each = length(var.source_bucket_arns) > 0 ? [var.source_bucket_arns] : []

    content {
      actions   = ["s3:ListBucket"]
      resources = statement.value
    }
  }
}

resource "aws_iam_role" "spark" {
  count              = local.spark
  name               = "${var.name}-spark"
  assume_role_policy = data.aws_iam_policy_document.spark_tasks.json
}

resource "aws_iam_role_policy" "spark_objects" {
  count  = local.spark
  name   = "objects"
  role   = aws_iam_role.spark[0].id
  policy = local.writer
}

resource "aws_iam_role_policy" "spark_sources" {
  count  = local.spark
  name   = "sources"
  role   = aws_iam_role.spark[0].id
  policy = data.aws_iam_policy_document.spark.json
}
