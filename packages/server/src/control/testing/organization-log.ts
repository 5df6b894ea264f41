/** Reads and verifies the audit logs of organizations in tests. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { AuditHead } from '@coppice/contract';
import {
  parseOrganizationAuditLine,
  type OrganizationAuditEntry,
} from '../../../../sdk/src/audit/organization-audit-entry.ts';
import { verifyOrganizationAudit } from '../../../../sdk/src/audit/verify-organization-audit.ts';
import { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import { OrganizationSecrets } from '../audit/organization/organization-secrets.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import type { ControlHarness } from './control-harness.ts';

/** Opens the log of the running control, as a second writer. */
export function openOrganizationAudit(harness: ControlHarness): OrganizationAudit {
  const { current, older } = openMasterKeys(join(harness.directory, 'data', 'master.key'));
  return new OrganizationAudit(new SecretBox(current, older));
}

/** Reads the log that a key sees, without a check. */
export async function readOrganizationLog(
  harness: ControlHarness,
  { apiKey, query = '' }: { apiKey?: string; query?: string } = {},
): Promise<OrganizationAuditEntry[]> {
  const answer = await harness.fetch('GET', `/v1/organization/audit${query}`, apiKey ? { apiKey } : {});
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return text === '' ? [] : text.trimEnd().split('\n').map(parseOrganizationAuditLine);
}

/** Reads the log of a key's organization, and verifies it up to its head with the client's own code. */
export async function verifyOrganizationLog(
  harness: ControlHarness,
  { apiKey }: { apiKey?: string } = {},
): Promise<OrganizationAuditEntry[]> {
  const key = apiKey ? { apiKey } : {};
  const head = (await harness.call('GET', '/v1/organization/audit?head=true', key)).body as AuditHead;
  const entries = await readOrganizationLog(harness, key);
  const [first] = entries;
  assert.ok(first !== undefined);
  const secrets = await readOrganizationSecrets(harness, first.organizationId);
  const verdict = await verifyOrganizationAudit(entries, secrets, { head });
  assert.ok(verdict.valid, JSON.stringify(verdict));
  assert.equal(verdict.complete, true);
  return entries;
}

/** Returns the secrets of an organization's log, by id. */
export async function readOrganizationSecrets(
  harness: ControlHarness,
  organizationId: string,
): Promise<Record<string, string>> {
  await using db = harness.openDatabase();
  const { current, older } = openMasterKeys(join(harness.directory, 'data', 'master.key'));
  const secrets = new OrganizationSecrets(new SecretBox(current, older));
  const opened: Record<string, string> = {};
  for (const { id } of await secrets.list(db, organizationId))
    opened[id] = (await secrets.get(db, organizationId, id)).secret.reveal();
  return opened;
}
