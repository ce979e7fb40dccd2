resource "google_service_account" "spark" {
  count        = var.spark ? 1 : 0
  account_id   = "${var.name}-spark"
  display_name = "Spark jobs of Lakebed"
}

resource "google_storage_bucket_iam_member" "spark" {
  count  = var.spark ? 1 : 0
  bucket = google_storage_bucket.lake.name
  role   = google_project_iam_custom_role.writer.name
  member = "serviceAccount:${google_service_account.spark[0].email}"
}

# Serverless Dataproc refuses an account without it. It reaches buckets of the whole project: keep others elsewhere.
resource "google_project_iam_member" "spark" {
  count   = var.spark ? 1 : 0
  project = var.project
  role    = "roles/dataproc.worker"
  member  = "serviceAccount:${google_service_account.spark[0].email}"
}
