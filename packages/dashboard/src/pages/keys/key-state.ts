import type { ApiKeyRecord } from '../../../../contract/src/accounts/team-keys.ts';

export type KeyState = 'active' | 'expired' | 'revoked';

const SOON_MS = 7 * 86_400_000;

/** Returns the state of a key. A revoked key stays revoked when it expires. */
export function keyState({ revoked_at, expires_at }: ApiKeyRecord, now: number): KeyState {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && Date.parse(expires_at) <= now ? 'expired' : 'active';
}

/** Whether an active key ends within a week. */
export function endsSoon(key: ApiKeyRecord, now: number): boolean {
  const { expires_at: end } = key;
  return keyState(key, now) === 'active' && end !== null && Date.parse(end) - now < SOON_MS;
}

/** The line that gives a key to programs in a shell. */
export function exportLine(key: string): string {
  return `export SANDBOX_API_KEY=${key}`;
}
