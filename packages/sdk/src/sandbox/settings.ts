import type { CallOptions } from '../transport/client-options.ts';
import { buildWireBody } from '../transport/wire.ts';
import type { Transport } from '../transport/transport.ts';
import { parseSandboxInfo, type SandboxInfo } from './sandbox-record.ts';

/** Settings that `sandbox.update()` changes. Those left out keep their values. */
export interface SandboxSettings {
  /**
   * Idle time in seconds (0–2 592 000) after which the sandbox is destroyed, or hibernated with `autoHibernate`. 0
   * means never.
   */
  timeout?: number | undefined;
  /** Name of the sandbox, 1–64 characters, which no other sandbox of the team may have. Null for none. */
  name?: string | null | undefined;
  /** Up to 32 labels. They replace all labels of the sandbox. */
  labels?: Record<string, string> | undefined;
  /** If true, the idle sandbox is hibernated instead of destroyed, and resumed by the next call that uses it. */
  autoHibernate?: boolean | undefined;
  /**
   * Seconds (1–31 536 000) from the create after which the sandbox is destroyed even if it is in use; they must not have
   * passed yet. Null means no limit.
   */
  maxLifetime?: number | null | undefined;
  /**
   * Time at which the sandbox is destroyed even if it is in use: in the future, at most a year ahead. A text is ISO 8601
   * with its offset. Null means none.
   */
  expiresAt?: Date | string | null | undefined;
  /** All environment variables, as in a create, for processes that are started from now on. */
  env?: Record<string, string> | undefined;
  /** Where processes start from now on, as in a create. Null means the working directory of the image. */
  cwd?: string | null | undefined;
}

const SETTINGS_FIELDS = {
  timeout: 'timeout',
  name: 'name',
  labels: 'labels',
  autoHibernate: 'auto_hibernate',
  maxLifetime: 'max_lifetime',
  expiresAt: 'expires_at',
  env: 'env',
  cwd: 'cwd',
} as const satisfies Record<keyof SandboxSettings, string>;

/** Changes settings of the sandbox at `path`. Throws `TypeError` for an unknown option, for NaN and for infinity. */
export async function updateSandbox(
  transport: Transport,
  path: string,
  settings: SandboxSettings,
  call: CallOptions,
): Promise<SandboxInfo> {
  const body = buildWireBody(settings, SETTINGS_FIELDS, 'update');
  const answer = await transport.callJson(
    {
      method: 'PATCH',
      path,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      idempotent: true,
      signal: call.signal,
    },
    parseSandboxInfo,
  );
  return answer.value;
}
