export const BUILD_ID = 'build0123456789abcdef0123';

/** The record of a finished build, as the service sends it. */
export const WIRE_BUILD = {
  id: BUILD_ID,
  status: 'done',
  name: 'built/app:1',
  from: 'node:22-slim',
  image: 'built/app:1@sha256:0',
  size_bytes: 5,
  run_id: 'run0123456789abcdef0123',
  steps: 2,
  steps_done: 2,
  error: null,
  created_at: '2026-01-01T00:00:00.000Z',
  ended_at: '2026-01-01T00:01:00.000Z',
};
