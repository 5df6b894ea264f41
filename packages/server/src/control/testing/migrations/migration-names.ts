/** Names and values in the rows of migration-rows.ts that tests look for. */
import { Secret } from '../../../lib/secret.ts';
import { SecretBox } from '../../secrets/secret-box.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
export const NOW = Date.now();
/** Times of ended sandboxes: how long each existed, and how long of that it ran. */
export const LIFE_MS = 400 * DAY_MS + 1;
export const BILLED_MS = LIFE_MS - 5000;

export const MASTER_KEY = Buffer.alloc(32, 7);
export const REGISTRY_PASSWORD = 'the registry’s password';
export const GRANTED_SECRET = 'sk-of-a-sandbox';
export const NAMED_SECRET = 'sk-of-an-organization';
export const OTHER_KEY = `cop_live_us_${'o'.repeat(40)}`;
export const RUNNING_ID = `run${'1'.repeat(20)}`;
export const HIBERNATED_ID = `run${'4'.repeat(20)}`;
export const HIBERNATION_ID = `hib${'4'.repeat(20)}`;
export const ROLLBACK_ID = `roll${'1'.repeat(20)}`;
export const SNAPSHOT_ID = `snap${'1'.repeat(20)}`;
export const REGISTRY = 'registry.test';

/** Formats bytes as SQL accepts them. */
export function toHex(bytes: Uint8Array): string {
  return `\\x${Buffer.from(bytes).toString('hex')}`;
}

export const SEALED_PASSWORD = toHex(
  new SecretBox(MASTER_KEY).seal(new Secret(REGISTRY_PASSWORD), {
    organizationId: 'orgfirst',
    purpose: 'registry password',
    name: REGISTRY,
  }),
);
