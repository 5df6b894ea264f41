/** All tables, in the types of kysely. The folder that owns a table declares it. */
import type {
  ApiKeyTable,
  InvitationTable,
  LoginSessionTable,
  MembershipTable,
  OrganizationTable,
  TeamMemberTable,
  TeamSecretTable,
  TeamTable,
  UserTable,
} from '../accounts/account-tables.ts';
import type {
  BillingAccountTable,
  BillingSegmentTable,
  CreditGrantTable,
  DiskStorageTable,
  OrganizationLimitsTable,
  TeamAccountTable,
} from '../billing/billing-tables.ts';
import type { CommandTable } from '../commands/command-tables.ts';
import type { DiskSnapshotTable, DiskTable } from '../disks/disk-tables.ts';
import type { EgressCursorTable, SandboxCredentialTable } from '../egress/egress-tables.ts';
import type { NamedSecretTable } from '../egress/named-secrets/named-secret-tables.ts';
import type {
  EventCounterTable,
  EventGapTable,
  EventHorizonTable,
  EventTable,
  PendingEventTable,
} from '../events/event-tables.ts';
import type { WebhookAttemptTable, WebhookDeliveryTable, WebhookTable } from '../webhooks/webhook-tables.ts';
import type { AuthorityTable, JoinTokenTable } from '../authority/authority-tables.ts';
import type { AuditEntryTable } from '../audit/audit-tables.ts';
import type {
  OrganizationAuditEntryTable,
  OrganizationAuditSecretTable,
} from '../audit/organization/organization-audit-tables.ts';
import type {
  BuiltImageTable,
  ImageBuildEventTable,
  ImageBuildTable,
  ImageReleaseTable,
  ImageStepTable,
} from '../images/built-image-tables.ts';
import type { BuildContextTable } from '../image-builds/build-context-table.ts';
import type { ImageUseTable } from '../images/image-tables.ts';
import type { PreviewTable } from '../ports/preview-tables.ts';
import type { UsedTicketTable } from '../auth/used-tickets.ts';
import type { BudgetAlertTable, BudgetTable } from '../billing/budgets/budget-tables.ts';
import type { ControlTable, RunnerTable } from '../ownership/ownership-tables.ts';
import type { RegistryCredentialTable } from '../registries/registry-tables.ts';
import type { IdempotencyKeyTable, SandboxTable } from '../sandbox/record/sandbox-tables.ts';
import type { CaptureObjectTable } from '../snapshots/capture-object-tables.ts';
import type { SnapshotTable } from '../snapshots/snapshot-tables.ts';

export interface Tables {
  organizations: OrganizationTable;
  teams: TeamTable;
  team_secrets: TeamSecretTable;
  users: UserTable;
  memberships: MembershipTable;
  team_members: TeamMemberTable;
  login_sessions: LoginSessionTable;
  invitations: InvitationTable;
  api_keys: ApiKeyTable;
  sandboxes: SandboxTable;
  audit_entries: AuditEntryTable;
  organization_audit_secrets: OrganizationAuditSecretTable;
  organization_audit_entries: OrganizationAuditEntryTable;
  idempotency_keys: IdempotencyKeyTable;
  registry_credentials: RegistryCredentialTable;
  image_uses: ImageUseTable;
  built_images: BuiltImageTable;
  image_steps: ImageStepTable;
  image_builds: ImageBuildTable;
  image_build_events: ImageBuildEventTable;
  image_releases: ImageReleaseTable;
  build_contexts: BuildContextTable;
  previews: PreviewTable;
  used_tickets: UsedTicketTable;
  controls: ControlTable;
  runners: RunnerTable;
  authorities: AuthorityTable;
  join_tokens: JoinTokenTable;
  snapshots: SnapshotTable;
  capture_objects: CaptureObjectTable;
  billing_segments: BillingSegmentTable;
  billing_accounts: BillingAccountTable;
  team_accounts: TeamAccountTable;
  credit_grants: CreditGrantTable;
  organization_limits: OrganizationLimitsTable;
  disk_storage: DiskStorageTable;
  budgets: BudgetTable;
  budget_alerts: BudgetAlertTable;
  commands: CommandTable;
  disks: DiskTable;
  disk_snapshots: DiskSnapshotTable;
  named_secrets: NamedSecretTable;
  sandbox_credentials: SandboxCredentialTable;
  egress_cursors: EgressCursorTable;
  pending_events: PendingEventTable;
  events: EventTable;
  event_counter: EventCounterTable;
  event_horizons: EventHorizonTable;
  event_gaps: EventGapTable;
  webhooks: WebhookTable;
  webhook_deliveries: WebhookDeliveryTable;
  webhook_attempts: WebhookAttemptTable;
}
