locals {
  service = var.image == "" ? 0 : 1
}

resource "aws_ecs_cluster" "lake" {
  count = local.service
  name  = var.name
}

resource "aws_cloudwatch_log_group" "service" {
  count             = local.service
  name              = "/lakebed/${var.name}"
  retention_in_days = 30
}

resource "aws_security_group" "service" {
  count       = local.service
  name        = "${var.name}-service"
  description = "The HTTP API of lakebed serve"
  vpc_id      = var.vpc_id

  ingress {
    description = "HTTP API and pages"
    from_port   = 8017
    to_port     = 8017
    protocol    = "tcp"
    cidr_blocks = var.client_cidrs
  }

  egress {
    description = "The bucket, the registry of the image and the log"
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

# Memory and disk are those of docs/operations.md: 4 GiB and 1 GiB for each of four operations; sorts spill to the disk.
resource "aws_ecs_task_definition" "service" {
  count                    = local.service
  family                   = "${var.name}-service"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 2048
  memory                   = 8192
  execution_role_arn       = aws_iam_role.start.arn
  task_role_arn            = aws_iam_role.service.arn

  ephemeral_storage {
    size_in_gib = 50
  }

  container_definitions = jsonencode([
    {
      name      = "lakebed"
      image     = var.image
      essential = true
      command   = ["serve", "--host", "0.0.0.0", "--port", "8017", "--in-process"]
      environment = [
        { name = "LAKEBED_INSTANCE", value = "s3://${aws_s3_bucket.lake.bucket}/${var.root}" },
        { name = "AWS_REGION", value = var.region },
      ]
      portMappings = [{ containerPort = 8017, protocol = "tcp" }]
      stopTimeout  = 120
      logConfiguration = {
        logDriver = "awslogs"
        options = {
          "awslogs-group"         = aws_cloudwatch_log_group.service[0].name
          "awslogs-region"        = var.region
          "awslogs-stream-prefix" = "service"
        }
      }
    }
  ])
}

resource "aws_ecs_service" "service" {
  count           = local.service
  name            = "service"
  cluster         = aws_ecs_cluster.lake[0].id
  task_definition = aws_ecs_task_definition.service[0].arn
  desired_count   = var.services
  launch_type     = "FARGATE"

  network_configuration {
    subnets         = var.subnet_ids
    security_groups = [aws_security_group.service[0].id]
  }
}
