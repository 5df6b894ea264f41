/** Rows of images that were built from steps, and of their builds. */
import { NOW } from './migration-names.ts';

const BUILD_ID = `build${'1'.repeat(20)}`;
const DIGEST = `sha256:${'e'.repeat(64)}`;

export const IMAGE_BUILDS = {
  adds: {
    built_images: [
      {
        organization_id: 'orgfirst',
        team_id: 'team1',
        name: 'built/app:1',
        digest: DIGEST,
        size_bytes: 2 ** 33,
        built_at: NOW - 1000,
      },
    ],
    image_builds: [
      {
        id: BUILD_ID,
        organization_id: 'orgfirst',
        team_id: 'team1',
        name: 'built/app:1',
        base: 'node:22-slim',
        sandbox_id: `run${'9'.repeat(20)}`,
        state: 'done',
        steps: 2,
        steps_done: 2,
        digest: DIGEST,
        size_bytes: 2 ** 33,
        error_code: null,
        error_message: null,
        created_at: NOW - 60_000,
        ended_at: NOW - 1000,
        team_only: false,
        cleaned: true,
      },
      {
        id: `build${'2'.repeat(20)}`,
        organization_id: 'orgfirst',
        team_id: 'team1',
        name: 'built/app:2',
        base: 'node:22-slim',
        sandbox_id: `run${'8'.repeat(20)}`,
        state: 'failed',
        steps: 3,
        steps_done: 1,
        digest: null,
        size_bytes: null,
        error_code: 'build_failed',
        error_message: 'steps[1]: false ended with exit code 1; it wrote nothing',
        created_at: NOW - 60_000,
        ended_at: NOW - 1000,
        team_only: false,
        cleaned: true,
      },
    ],
    image_steps: [
      {
        organization_id: 'orgfirst',
        key: 'a'.repeat(64),
        digest: DIGEST,
        size_bytes: 2 ** 33,
        last_used_at: NOW - 1000,
      },
    ],
    image_releases: [{ digest: `sha256:${'d'.repeat(64)}`, noted_at: NOW - 1000 }],
    image_build_events: [
      { build_id: BUILD_ID, seq: 1, event: '{"type":"note","text":"creating the sandbox"}' },
    ],
  },
};

export const BUILD_CONTEXTS = {
  adds: {
    build_contexts: [
      {
        id: `context${'1'.repeat(20)}`,
        organization_id: 'orgfirst',
        control_id: 'ctl1',
        expires_at: NOW,
      },
    ],
  },
};
