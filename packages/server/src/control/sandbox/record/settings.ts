/** Builds the row change and the audit entry for changed settings of a sandbox. Pure. */
import { isDeepStrictEqual } from 'node:util';
import { AppError, MAX_END_AHEAD_MS, type AuditData, type PatchSandboxRequest } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import { checkExpiry } from '../../time/expiry.ts';
import { findAgeMs } from '../../time/lifetime.ts';
import { toTimestamp } from '../../time/timestamp.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';

export interface ChangedSettings {
  update: SandboxUpdate;
  note: AuditNote | undefined;
}

type Settings = AuditData<'settings.changed'>;

/**
 * Returns undefined if every given setting has its value already. Throws `invalid_request` for a lifetime or an end that
 * has passed. A sandbox that is being created has no entry yet: its log begins when it runs.
 */
export function buildSettings(
  row: SandboxRow,
  request: PatchSandboxRequest,
  { now, sealedEnv }: { now: HostMoment; sealedEnv?: Buffer | null | undefined },
): ChangedSettings | undefined {
  const data = findChanges(row, request);
  if (Object.keys(data).length === 0) return undefined;
  if (typeof data.max_lifetime === 'number') checkLifetime(data.max_lifetime, findAgeMs(row, now));
  const { timeout, max_lifetime, expires_at, labels, env, ...same } = data;
  const update = {
    ...same,
    ...(timeout === undefined ? {} : { timeout_s: timeout }),
    ...(max_lifetime === undefined ? {} : { max_lifetime_s: max_lifetime }),
    ...(expires_at === undefined ? {} : { ends_at: checkEnd(request.expires_at ?? null, now) }),
    ...(env === undefined || sealedEnv === undefined ? {} : { sealed_env: sealedEnv }),
    ...(labels === undefined ? {} : { labels: JSON.stringify(labels) }),
  };
  return { update, note: row.status === 'creating' ? undefined : { event: 'settings.changed', data } };
}

/** Returns the settings that the request changes, with their new values; variables, if it gives any. */
function findChanges(
  row: SandboxRow,
  { max_lifetime, expires_at, env, ...request }: PatchSandboxRequest,
): Settings {
  const { name, labels, auto_hibernate, cwd } = row;
  const current: Settings = {
    name,
    labels,
    timeout: row.timeout_s,
    auto_hibernate,
    max_lifetime: row.max_lifetime_s,
    expires_at: toTimestamp(row.ends_at),
    cwd,
  };
  const asked: Settings = {
    ...request,
    ...(max_lifetime === undefined ? {} : { max_lifetime: max_lifetime === 0 ? null : max_lifetime }),
    ...(expires_at === undefined ? {} : { expires_at: toTimestamp(expires_at) }),
    ...(env === undefined ? {} : { env: Object.keys(env).toSorted() }),
  };
  const changes = Object.entries(asked).filter(
    ([key, value]) => value !== undefined && !isDeepStrictEqual(value, current[key as keyof Settings]),
  );
  return Object.fromEntries(changes);
}

function checkLifetime(maxLifetimeS: number, ageMs: number): void {
  if (maxLifetimeS * 1000 > ageMs) return;
  throw new AppError(
    'invalid_request',
    `max_lifetime: the sandbox is ${Math.ceil(ageMs / 1000)} s old already; choose more seconds than that, or destroy it`,
  );
}

/** Returns an end, in Unix milliseconds. Throws `invalid_request` if it has passed or is too far ahead. */
export function checkEnd(endsAt: number | null, { wallMs }: HostMoment): number | null {
  return checkExpiry(endsAt, { wallMs, maxAheadMs: MAX_END_AHEAD_MS });
}
