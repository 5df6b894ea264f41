/** The part of migration-rows.ts for what organizations have: named secrets and audit logs. */
import { OPERATOR_ACTOR } from '@coppice/contract';
import { buildEntry } from '../../audit/organization/organization-entry.ts';
import { bindOrganizationAuditSecret } from '../../audit/organization/organization-secrets.ts';
import { bindNamedSecret } from '../../egress/named-secrets/secret-values.ts';
import { Secret } from '../../../lib/secret.ts';
import { SecretBox } from '../../secrets/secret-box.ts';
import { DAY_MS, HIBERNATED_ID, HOUR_MS, MASTER_KEY, NAMED_SECRET, NOW, toHex } from './migration-names.ts';
import type { Change } from './migration-rows.ts';

const SECRET_ID = `sec${'1'.repeat(20)}`;
export const NAMED_SECRETS: Change = {
  adds: {
    named_secrets: [
      {
        id: SECRET_ID,
        organization_id: 'orgfirst',
        name: 'anthropic-production',
        sealed_value: toHex(
          new SecretBox(MASTER_KEY).seal(
            new Secret(NAMED_SECRET),
            bindNamedSecret('orgfirst', 'anthropic-production'),
          ),
        ),
        version: 3,
        created_at: NOW - DAY_MS,
        updated_at: NOW - HOUR_MS,
      },
    ],
    sandbox_credentials: [
      {
        sandbox_id: HIBERNATED_ID,
        service: 'anthropic',
        endpoints: null,
        sealed_secret: null,
        secret_id: SECRET_ID,
        secret_version: 2,
        updated_at: NOW - HOUR_MS / 5,
      },
    ],
  },
};

const AUDIT_SECRET_ID = `ask${'7'.repeat(20)}`;
const AUDIT_SECRET = new Secret(`cos_${'7'.repeat(43)}`);
export const ORGANIZATION_AUDIT: Change = {
  adds: {
    organization_audit_secrets: [
      {
        id: AUDIT_SECRET_ID,
        organization_id: 'orgfirst',
        sealed_secret: toHex(
          new SecretBox(MASTER_KEY).seal(
            AUDIT_SECRET,
            bindOrganizationAuditSecret('orgfirst', AUDIT_SECRET_ID),
          ),
        ),
        created_at: NOW - DAY_MS,
      },
    ],
    organization_audit_entries: [
      buildEntry({
        organizationId: 'orgfirst',
        key: { id: AUDIT_SECRET_ID, secret: AUDIT_SECRET },
        head: undefined,
        actor: OPERATOR_ACTOR,
        note: { event: 'organization.renamed', data: { name: 'of an old version: “é”' } },
        nowMs: NOW - DAY_MS,
      }),
    ],
  },
};
