/** Whether a sandbox's audit log is one unbroken chain, and all of it there: by the client's own check. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { AuditHead } from '@coppice/contract';
import { parseAuditLine } from '../../../../sdk/src/audit-entry.ts';
import { verifyAudit } from '../../../../sdk/src/verify-audit.ts';
import { TeamSecrets } from '../audit/team-secrets.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import type { ControlHarness } from './control-harness.ts';

/** Returns how many entries it has. `dataDir` is that of the control that serves. */
export async function verifyLog(
  harness: ControlHarness,
  sandboxId: string,
  dataDir = join(harness.directory, 'data'),
): Promise<number> {
  const path = `/v1/runs/${sandboxId}`;
  const head = (await harness.call('GET', `${path}/audit?head=true`)).body as AuditHead;
  const text = await (await harness.fetch('GET', `${path}/audit`)).text();
  const { audit_key_id } = (await harness.call('GET', path)).body as { audit_key_id: string };
  await using db = harness.openDatabase();
  const { current, older } = openMasterKeys(join(dataDir, 'master.key'));
  const secrets = new TeamSecrets(db, new SecretBox(current, older));
  const { secret } = await secrets.get(audit_key_id);
  const lines = text.trimEnd().split('\n').map(parseAuditLine);
  const verdict = await verifyAudit(lines, secret.reveal(), { head, sandboxId });
  assert.ok(verdict.valid, `${sandboxId}: ${JSON.stringify(verdict)}`);
  return verdict.entries;
}
