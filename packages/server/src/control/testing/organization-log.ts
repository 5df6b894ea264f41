/** Reads and verifies the audit logs of organizations in tests. */
import { join } from 'node:path';
import { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import type { ControlHarness } from './control-harness.ts';

/** Opens the log of the running control, as a second writer. */
export function openOrganizationAudit(harness: ControlHarness): OrganizationAudit {
  const { current, older } = openMasterKeys(join(harness.directory, 'data', 'master.key'));
  return new OrganizationAudit(new SecretBox(current, older));
}
