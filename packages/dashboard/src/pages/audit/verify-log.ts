/**
 * Verifies logs in the browser. The secrets come from the service to an owner, or from the reader; they are used here and
 * sent nowhere. The log is read anew: the verdict is about all of it, without filters.
 */
import {
  parseOrganizationAuditLine,
  verifyAudit,
  verifyOrganizationAudit,
  type AuditEntry,
  type AuditHead,
  type AuditVerdict,
} from '../../../../sdk/src/index.ts';
import { callAccount, fetchText } from '../../service/account-calls.ts';
import { readLines } from './log-text.ts';

export interface Verification {
  verdict: AuditVerdict;
  /** The last entry that was read. */
  head: { seq: number; hmac: string } | undefined;
  /** Ids of the secrets that were used. */
  secretIds: readonly string[];
  /** Whether the reader gave an earlier head. */
  isHeadGiven: boolean;
  /** Number of the entry at which the log stops being right; undefined for none, or if it ends there. */
  faultSeq: number | undefined;
}

interface ShownSecret {
  secret: string;
}

/** Whether the browser can compute the hashes: it does so only for pages over HTTPS or of the same machine. */
export function canVerify(): boolean {
  return (crypto as { subtle?: SubtleCrypto }).subtle !== undefined;
}

/** Verifies the log of the organization at a path below `/account`. */
export async function verifyOrganizationLog(
  path: string,
  organizationId: string,
  given: AuditHead | undefined,
): Promise<Verification> {
  // Reading a secret adds an entry to the log: the log is read after all of them.
  const records = await callAccount<{ id: string }[]>('GET', `${path}/audit-secrets`);
  const secrets = await Promise.all(
    records.map(async ({ id }) => {
      const { secret } = await callAccount<ShownSecret>('GET', `${path}/audit-secrets/${id}`);
      return [id, secret] as const;
    }),
  );
  const head = given ?? (await callAccount<AuditHead>('GET', `${path}/audit?head=true`));
  const entries = readLines(await fetchText('GET', `${path}/audit`), parseOrganizationAuditLine);
  const verdict = await verifyOrganizationAudit(entries, Object.fromEntries(secrets), {
    head,
    organizationId,
  });
  return summarize({ verdict, entries, given, secretIds: records.map(({ id }) => id) });
}

/** The log of a sandbox. */
interface SandboxLog {
  sandboxId: string;
  read: () => AsyncIterable<AuditEntry>;
  readHead: () => Promise<AuditHead>;
}

/** Verifies the log of a sandbox with a secret of its team. */
export async function verifySandboxLog(
  { sandboxId, read, readHead }: SandboxLog,
  { id, secret }: { id: string | null; secret: string },
  given: AuditHead | undefined,
): Promise<Verification> {
  const head = given ?? (await readHead());
  const entries = await Array.fromAsync(read());
  const verdict = await verifyAudit(entries, secret, { head, sandboxId });
  return summarize({ verdict, entries, given, secretIds: id === null ? [] : [id] });
}

function summarize({
  verdict,
  entries,
  given,
  secretIds,
}: {
  verdict: AuditVerdict;
  entries: readonly { seq: number; hmac: string }[];
  given: AuditHead | undefined;
  secretIds: readonly string[];
}): Verification {
  const isFromHead = !verdict.valid && verdict.problem === 'other_head';
  const fault = verdict.valid ? undefined : isFromHead ? verdict : entries[verdict.entries];
  const head = entries.at(-1);
  return { verdict, head, secretIds, isHeadGiven: given !== undefined, faultSeq: fault?.seq };
}

/** Fetches the secret that keys the log of a sandbox, for an owner. */
export async function fetchTeamSecret(
  organizationPath: string,
  teamId: string,
  secretId: string,
): Promise<string> {
  const path = `${organizationPath}/teams/${teamId}/audit-secrets/${secretId}`;
  return (await callAccount<ShownSecret>('GET', path)).secret;
}
