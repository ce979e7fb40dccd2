# Requests pass the proxy of Cloud Run, which ends them after an hour; the CPU stays on, since the service maintains
# tables between requests. Its disk is memory: give large merges to Spark.
resource "google_cloud_run_v2_service" "service" {
  count    = var.image == "" ? 0 : 1
  name     = var.name
  location = var.region
  ingress  = "INGRESS_TRAFFIC_INTERNAL_ONLY"

  template {
    service_account                  = google_service_account.service.email
    timeout                          = "3600s"
    max_instance_request_concurrency = 32

    scaling {
      min_instance_count = 1
      max_instance_count = 2
    }

    containers {
      image = var.image
      args  = ["serve", "--host", "0.0.0.0", "--port", "8017", "--in-process"]

      env {
        name  = "LAKEBED_INSTANCE"
        value = "gs://${google_storage_bucket.lake.name}/${var.root}"
      }

      ports {
        container_port = 8017
      }

      resources {
        limits   = { cpu = "2", memory = "8Gi" }
        cpu_idle = false
      }

      liveness_probe {
        http_get {
          path = "/health/live"
          port = 8017
        }
      }
    }
  }
}
