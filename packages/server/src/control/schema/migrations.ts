/** Numbered migrations, run in order at start. A released migration is never edited: databases have run it already. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { accountsMigration } from '../accounts/accounts-migration.ts';
import { auditMigration } from '../audit/audit-migration.ts';
import { organizationAuditMigration } from '../audit/organization/organization-audit-migration.ts';
import { createAuthority } from '../authority/authority-migration.ts';
import { billingMigration } from '../billing/billing-migration.ts';
import { budgetsMigration } from '../billing/budgets/budgets-migration.ts';
import { addDiskLimits, createDiskStorage } from '../billing/storage/storage-migration.ts';
import { commandsMigration } from '../commands/commands-migration.ts';
import { createDisks, nameControlsOfDisks } from '../disks/disks-migration.ts';
import { egressGenerationMigration } from '../egress/egress-generation-migration.ts';
import { createEvents } from '../events/events-migration.ts';
import { egressMigration } from '../egress/egress-migration.ts';
import { namedSecretsMigration } from '../egress/named-secrets/named-secrets-migration.ts';
import { historyMigration } from '../billing/history-migration.ts';
import { installationMigration } from '../db/installation-migration.ts';
import { keyScopesMigration } from '../auth/key-scopes-migration.ts';
import { sessionKeysMigration } from '../auth/session-keys-migration.ts';
import {
  addLeavingControls,
  addRunnerAddresses,
  addRunnerReports,
  addSeenMoments,
  createOwnership,
} from '../ownership/ownership-migration.ts';
import { createUsedTickets } from '../auth/used-tickets.ts';
import {
  addLiveColumns,
  addQuotaColumns,
  addRowVersions,
  addRunnerIds,
  nameControlsOfKeys,
} from '../sandbox/record/ownership-columns.ts';
import { rollbacksMigration } from '../sandbox/record/rollbacks-migration.ts';
import { teamsMigration } from '../accounts/teams-migration.ts';
import { createAccounts } from '../accounts/first-accounts.ts';
import {
  builtImagesMigration,
  nameControlsOfBuilds,
  indexRunnersOfImages,
  nameRunnersOfImages,
} from '../images/built-images-migration.ts';
import { createBuildContexts } from '../image-builds/build-context-table.ts';
import { createImageUses, indexDigestsOfUses } from '../images/first-image-uses.ts';
import { createPreviews } from '../ports/first-previews.ts';
import { createRegistryCredentials } from '../registries/first-registries.ts';
import {
  addHibernation,
  addTimesSinceBoot,
  createIdempotencyKeys,
  createSandboxes,
  nameSubjects,
} from '../sandbox/record/first-sandboxes.ts';
import { addSandboxDisks, addSandboxSettings } from '../sandbox/record/added-columns.ts';
import { addSnapshotDisks } from '../snapshots/snapshot-disks-migration.ts';
import { createCaptureObjects } from '../snapshots/capture-objects-migration.ts';
import { addSnapshotSettings } from '../snapshots/snapshot-settings-migration.ts';
import { createSnapshots } from '../snapshots/first-snapshots.ts';
import { createWebhooks } from '../webhooks/webhooks-migration.ts';

type Database = Kysely<unknown>;

export const MIGRATIONS: Record<string, Migration> = {
  '0001_first': {
    async up(db: Database) {
      await createAccounts(db);
      await createSandboxes(db);
      await createIdempotencyKeys(db);
    },
  },
  '0002_private_images': {
    async up(db: Database) {
      await createRegistryCredentials(db);
      await createImageUses(db);
    },
  },
  '0003_time_since_boot': {
    async up(db: Database) {
      await addTimesSinceBoot(db);
    },
  },
  '0004_previews': {
    async up(db: Database) {
      await createPreviews(db);
    },
  },
  '0005_captures': {
    async up(db: Database) {
      await addHibernation(db);
      await createSnapshots(db);
      await nameSubjects(db);
    },
  },
  '0006_teams': teamsMigration,
  '0007_audit': auditMigration,
  '0008_accounts': accountsMigration,
  '0009_billing': billingMigration,
  '0010_egress': egressMigration,
  '0011_installation': installationMigration,
  '0012_key_scopes': keyScopesMigration,
  '0013_rollbacks': rollbacksMigration,
  '0014_history': historyMigration,
  '0015_egress_generation': egressGenerationMigration,
  '0016_disks': {
    async up(db: Database) {
      await createDisks(db);
      await addSandboxDisks(db);
      await addSnapshotDisks(db);
      await createDiskStorage(db);
      await addDiskLimits(db);
    },
  },
  '0017_commands': commandsMigration,
  '0018_settings': {
    async up(db: Database) {
      await addSandboxSettings(db);
      await addSnapshotSettings(db);
    },
  },
  '0021_events': {
    async up(db: Database) {
      await createEvents(db);
      await createWebhooks(db);
    },
  },
  '0022_named_secrets': namedSecretsMigration,
  '0023_organization_audit': organizationAuditMigration,
  '0024_image_builds': builtImagesMigration,
  '0025_session_keys': sessionKeysMigration,
  '0026_budgets': budgetsMigration,
  '0027_ownership': {
    async up(db: Database) {
      await addRowVersions(db);
      await addRunnerIds(db);
      await addQuotaColumns(db);
      await nameControlsOfKeys(db);
      await createUsedTickets(db);
      await createOwnership(db);
    },
  },
  '0028_runner_identities': {
    async up(db: Database) {
      await addRunnerAddresses(db);
      await createAuthority(db);
    },
  },
  '0029_capture_objects': { up: createCaptureObjects },
  '0030_live_columns': {
    async up(db: Database) {
      await addLiveColumns(db);
    },
  },
  '0031_work_of_controls': {
    async up(db: Database) {
      await nameControlsOfDisks(db);
      await nameControlsOfBuilds(db);
    },
  },
  '0032_runners_of_images': {
    async up(db: Database) {
      await nameRunnersOfImages(db);
    },
  },
  '0033_runner_reports': { up: addRunnerReports },
  '0035_leaving_controls': { up: addLeavingControls },
  '0036_seen_runners': { up: addSeenMoments },
  '0037_build_contexts': { up: createBuildContexts },
  '0038_images_by_runner': { up: indexRunnersOfImages },
  '0039_uses_by_digest': { up: indexDigestsOfUses },
};
