/** A sandbox as the service sends it. */
export const RECORD = {
  id: `run${'0a'.repeat(10)}`,
  status: 'running',
  team_id: null,
  image: 'docker.io/library/node:22-slim',
  region: 'us',
  vcpus: 1,
  mem_mib: 1024,
  disk_mib: 4096,
  create_ms: 5,
  created_at: '2026-11-21T06:30:00.000Z',
  timeout: 300,
  auto_hibernate: false,
  labels: {},
};
