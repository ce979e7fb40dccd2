# No rule that deletes or moves objects: Lakebed itself deletes what it no longer needs. Without soft delete, or deleted
# files are billed for another week.
resource "google_storage_bucket" "lake" {
  name                        = var.name
  location                    = var.region
  force_destroy               = var.delete_data
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }

    condition {
      age = 2
    }
  }
}
