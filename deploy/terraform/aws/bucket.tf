resource "aws_s3_bucket" "lake" {
  bucket        = var.name
  force_destroy = var.delete_data
}

resource "aws_s3_bucket_public_access_block" "lake" {
  bucket                  = aws_s3_bucket.lake.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# The only rule that an instance bears: Lakebed itself deletes what it no longer needs, and an old file may be part of
# the latest version.
resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  bucket = aws_s3_bucket.lake.id

  rule {
    id     = "parts-of-uploads-that-failed"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }
}
