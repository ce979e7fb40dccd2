# The permissions of each kind of request that Lakebed makes; a test compares them with the requests of a run. To replace
# an object takes storage.objects.delete.

locals {
  reads  = ["storage.objects.get", "storage.objects.list"]
  writes = ["storage.objects.create", "storage.objects.delete", "storage.multipartUploads.create", "storage.multipartUploads.abort"]
}

resource "google_project_iam_custom_role" "reader" {
  role_id     = "${replace(var.name, "-", "_")}_reader"
  title       = "Reads the Lakebed instance ${var.name}"
  permissions = local.reads
}

resource "google_project_iam_custom_role" "writer" {
  role_id     = "${replace(var.name, "-", "_")}_writer"
  title       = "Reads, writes and maintains the Lakebed instance ${var.name}"
  permissions = concat(local.reads, local.writes)
}

resource "google_service_account" "service" {
  account_id   = "${var.name}-service"
  display_name = "lakebed serve"
}

resource "google_storage_bucket_iam_member" "service" {
  bucket = google_storage_bucket.lake.name
  role   = google_project_iam_custom_role.writer.name
  member = "serviceAccount:${google_service_account.service.email}"
}

resource "google_storage_bucket_iam_member" "readers" {
  for_each = toset(var.reader_members)
  bucket   = google_storage_bucket.lake.name
  role     = google_project_iam_custom_role.reader.name
  member   = each.value
}
