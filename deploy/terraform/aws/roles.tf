# What each role may do is in policies/, as S3 wants it. A test runs Lakebed against a server that grants nothing else,
# and finds each action used.

locals {
  object = { bucket = aws_s3_bucket.lake.bucket, root = var.root }
  writer = templatefile("${path.module}/policies/writer.json.tftpl", local.object)
  reader = templatefile("${path.module}/policies/reader.json.tftpl", local.object)
}

data "aws_iam_policy_document" "tasks" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "service" {
  name               = "${var.name}-service"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy" "service" {
  name   = "objects"
  role   = aws_iam_role.service.id
  policy = local.writer
}

# Pulls the image and writes the log of the service; it does not reach the instance.
resource "aws_iam_role" "start" {
  name               = "${var.name}-start"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy_attachment" "start" {
  role       = aws_iam_role.start.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

data "aws_iam_policy_document" "readers" {
  count = length(var.reader_principals) > 0 ? 1 : 0

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = var.reader_principals
    }
  }
}

resource "aws_iam_role" "reader" {
  count              = length(var.reader_principals) > 0 ? 1 : 0
  name               = "${var.name}-reader"
  assume_role_policy = data.aws_iam_policy_document.readers[0].json
}

resource "aws_iam_role_policy" "reader" {
  count  = length(var.reader_principals) > 0 ? 1 : 0
  name   = "objects"
  role   = aws_iam_role.reader[0].id
  policy = local.reader
}
