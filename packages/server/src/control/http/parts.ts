import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import type { Accounts } from '../accounts/accounts.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { AuditStore } from '../audit/audit-store.ts';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { TeamSecrets } from '../audit/team-secrets.ts';
import type { Authenticate } from '../auth/authenticator.ts';
import type { FileLinks } from '../auth/file-links.ts';
import type { KeyEnds } from '../auth/key-ends.ts';
import type { KeyGuesses } from '../auth/key-guesses.ts';
import type { KeyUses } from '../auth/key-uses.ts';
import type { SessionKeys } from '../auth/session-keys.ts';
import type { Tickets } from '../auth/tickets.ts';
import type { Billing } from '../billing/billing.ts';
import type { Budgets } from '../billing/budgets/budgets.ts';
import type { ControlLimits } from '../control-config.ts';
import type { Database } from '../db/database.ts';
import type { DiskSnapshots } from '../disks/disk-snapshots.ts';
import type { Disks } from '../disks/disks.ts';
import type { EgressRules } from '../egress/egress-rules.ts';
import type { Grants } from '../egress/grants.ts';
import type { NamedSecrets } from '../egress/named-secrets/named-secrets.ts';
import type { SecretValues } from '../egress/named-secrets/secret-values.ts';
import type { SecretDigest } from '../egress/secret-digest.ts';
import type { BuildContexts } from '../image-builds/build-contexts.ts';
import type { ImageBuilds } from '../image-builds/image-builds.ts';
import type { BuiltImages } from '../images/built-images.ts';
import type { ImageUses } from '../images/image-uses.ts';
import type { RateLimiter } from '../limits/rate-limiter.ts';
import type { ServiceMetrics } from '../metrics/service-metrics.ts';
import type { PortForwarder } from '../ports/forward.ts';
import type { PreviewOrigins } from '../ports/preview-origins.ts';
import type { Previews } from '../ports/previews.ts';
import type { FleetImages } from '../images/fleet-images.ts';
import type { RequestForwarder } from './forwarding/request-forwarder.ts';
import type { Runners } from '../runners/runners.ts';
import type { Registries } from '../registries/registries.ts';
import type { Environments } from '../sandbox/environment/environments.ts';
import type { Idempotency } from '../sandbox/idempotency.ts';
import type { OutputBudget } from '../sandbox/commands/output-budget.ts';
import type { Commands } from '../commands/commands.ts';
import type { Sandboxes } from '../sandbox/sandboxes.ts';
import type { Events } from '../events/events.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { StaticSite } from '../static-site/static-site.ts';
import type { Webhooks } from '../webhooks/webhooks.ts';
import type { Exposure } from './serving/exposure.ts';
import type { OpenRequests } from './access/open-requests.ts';

/** The parts that endpoints use; each endpoint picks its own. */
export interface HttpParts {
  authenticate: Authenticate;
  keyGuesses: KeyGuesses;
  keyEnds: KeyEnds;
  keyUses: KeyUses;
  sessionKeys: SessionKeys;
  accounts: Accounts;
  db: Database;
  teamSecrets: TeamSecrets;
  organizationAudit: OrganizationAudit;
  tickets: Tickets;
  fileLinks: FileLinks;
  sandboxes: Sandboxes;
  commands: Commands;
  audit: AuditLog;
  auditStore: AuditStore;
  events: Events;
  webhooks: Webhooks;
  snapshots: Snapshots;
  disks: Disks;
  diskSnapshots: DiskSnapshots;
  rules: EgressRules;
  grants: Grants;
  environments: Environments;
  secretDigest: SecretDigest;
  namedSecrets: NamedSecrets;
  secretValues: SecretValues;
  registries: Registries;
  imageUses: ImageUses;
  builtImages: BuiltImages;
  imageBuilds: ImageBuilds;
  contexts: BuildContexts;
  /** Id of this control. */
  control: string;
  runners: Runners;
  fleetImages: FleetImages;
  forwarder: PortForwarder;
  /** Undefined for a control that is alone. */
  requestForwarder: RequestForwarder | undefined;
  previews: Previews;
  previewOrigins: PreviewOrigins;
  idempotency: Idempotency;
  openRequests: OpenRequests;
  rateLimiter: RateLimiter;
  billing: Billing;
  budgets: Budgets;
  outputBudget: OutputBudget;
  metrics: ServiceMetrics;
  /** Opens `GET /metrics`; undefined: there is no such route. */
  metricsToken: string | undefined;
  /** Whether the trace of a request continues that of its caller. */
  continuesTraces: boolean;
  /** Served below `/docs`; undefined: there is no such route. */
  documentation: StaticSite | undefined;
  /** Served at `/`; undefined: there are no such routes. */
  dashboard: StaticSite | undefined;
  limits: ControlLimits;
  version: string;
  region: string;
  exposure: Exposure;
  /** Throws `unavailable` when another control may be about to write the same records; so does `authenticate`. */
  assertServing: () => void;
  /** Throws AppError `unavailable` when the service cannot serve. */
  checkHealth: () => Promise<void>;
  /** Returns the accelerator of new sandboxes. Throws `unavailable` until the runner has reported it. */
  getAccelerator: () => Accelerator;
}
