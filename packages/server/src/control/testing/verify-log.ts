/** Checks, with the client's own code, that a sandbox's audit log is one complete unbroken chain. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { AuditHead } from '@coppice/contract';
import { parseAuditLine } from '../../../../sdk/src/audit/audit-entry.ts';
import { verifyAudit } from '../../../../sdk/src/audit/verify-audit.ts';
import { TeamSecrets } from '../audit/team-secrets.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import type { ControlHarness } from './control-harness.ts';

export interface ReadLog {
  /** The log as the service returns it. */
  text: string;
  head: AuditHead;
  /** Audit secret of the team. */
  secret: string;
  sandboxId: string;
}

/** Verifies a log, and returns its number of entries. `dataDir` is that of the control that serves. */
export async function verifyLog(
  harness: ControlHarness,
  sandboxId: string,
  dataDir = join(harness.directory, 'data'),
): Promise<number> {
  const path = `/v1/runs/${sandboxId}`;
  const head = (await harness.call('GET', `${path}/audit?head=true`)).body as AuditHead;
  const text = await (await harness.fetch('GET', `${path}/audit`)).text();
  const { audit_key_id } = (await harness.call('GET', path)).body as { audit_key_id: string };
  const secret = await readAuditSecret(harness, audit_key_id, dataDir);
  return verifyEntries({ text, head, secret, sandboxId });
}

/** Verifies entries, and returns their number. */
export async function verifyEntries({ text, head, secret, sandboxId }: ReadLog): Promise<number> {
  const lines = text.trimEnd().split('\n').map(parseAuditLine);
  const verdict = await verifyAudit(lines, secret, { head, sandboxId });
  assert.ok(verdict.valid, `${sandboxId}: ${JSON.stringify(verdict)}`);
  return verdict.entries;
}

export async function readAuditSecret(
  harness: ControlHarness,
  keyId: string,
  dataDir = join(harness.directory, 'data'),
): Promise<string> {
  await using db = harness.openDatabase();
  const { current, older } = openMasterKeys(join(dataDir, 'master.key'));
  const secrets = new TeamSecrets(db, new SecretBox(current, older));
  return (await secrets.get(keyId)).secret.reveal();
}
