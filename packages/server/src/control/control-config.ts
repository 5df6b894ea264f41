import type { EgressSettings } from './egress/egress-rules.ts';
import type { SignUpMode } from './accounts/organizations/people.ts';
import type { PreviewDomain } from './ports/preview-origins.ts';
import { RETRY_DELAYS_MS } from './webhooks/retry-delay.ts';
import type { ObjectStoreConfig } from '../lib/objects/object-store-config.ts';

/** Limits of the control role. All have a default in `DEFAULT_CONTROL_LIMITS`. */
export interface ControlLimits {
  /** Whole create: image pull and preparation included. */
  createDeadlineMs: number;
  /** Whole fork, of any number of children. */
  forkDeadlineMs: number;
  /** Whole snapshot, hibernation, resume, restore or rollback. */
  captureDeadlineMs: number;
  /** How long a create or another operation continues while the runner cannot be reached. */
  runnerOutageDeadlineMs: number;
  /** How long a shutdown waits for open requests. */
  shutdownDeadlineMs: number;
  /** How long a start waits for another control to leave the database. */
  databasePatienceMs: number;
  /** Deadline for a JSON body to arrive. */
  bodyDeadlineMs: number;
  /** Longest time in which an upload or a download moves no byte. */
  transferStallMs: number;
  /** After this time without a connection the VMs of a runner on another machine count as lost. */
  runnerLossMs: number;
  /** How often the records are compared with the state of the runner. */
  reconcileIntervalMs: number;
  /** How long a capture that no record names is kept: its operation may be about to write the record. */
  captureGraceMs: number;
  /** Requests to guests (exec, files) open at once, per organization. */
  openRequestsPerOrganization: number;
  /** Sessions, streamed commands and proxied requests open at once, per organization. */
  openStreamsPerOrganization: number;
  /** Wrong API keys from one address, each minute. */
  wrongKeysPerMinute: number;
  /** Sandboxes that are creating, running or hibernated, per organization. */
  sandboxesPerOrganization: number;
  /** vCPUs of those that are creating or running, per organization; 0 for no limit. */
  vcpusPerOrganization: number;
  /** Memory of those in MiB, per organization; 0 for no limit. */
  memMiBPerOrganization: number;
  /** Average requests to the API per second, per organization; 0 for no limit. */
  requestsPerSecond: number;
  /** Requests at once after a pause, per organization. */
  requestBurst: number;
  /** How long running sandboxes continue after the credit is used up. */
  creditGraceMs: number;
  /** How often credit is checked and the limits of single organizations are read again. */
  accountIntervalMs: number;
  /** For how long a control that does not renew its lease keeps its runners. */
  controlLeaseMs: number;
  /** A control gets runners of others, which have more, once it has been alive for this time. */
  controlSettleMs: number;
  /** Snapshots on disk, per organization, in bytes. */
  snapshotBytesPerOrganization: number;
  /** Persistent disks, per organization; 0 for no limit. */
  disksPerOrganization: number;
  /** Sum of their sizes in GB of 2^30 bytes; 0 for no limit. */
  diskGbPerOrganization: number;
  /** How long a destroy waits until what the sandbox wrote to its disk is stored. */
  diskDetachDeadlineMs: number;
  /** The whole of an attempt to deliver a webhook. */
  webhookDeadlineMs: number;
  /** Waits of a delivery after its failed attempts; there is one attempt more. */
  webhookRetryDelaysMs: readonly number[];
  /** A webhook that has failed for this long is disabled. */
  webhookFailingMs: number;
  /** Output kept per stream of a buffered exec, in bytes. */
  execOutputBytes: number;
  /** Output of all buffered execs together that is held in memory, in bytes: see sandbox/commands/output-budget.ts. */
  execOutputTotalBytes: number;
}

export const DEFAULT_CONTROL_LIMITS: ControlLimits = {
  createDeadlineMs: 900_000,
  forkDeadlineMs: 900_000,
  captureDeadlineMs: 300_000,
  runnerOutageDeadlineMs: 30_000,
  shutdownDeadlineMs: 20_000,
  databasePatienceMs: 10_000,
  bodyDeadlineMs: 30_000,
  transferStallMs: 120_000,
  runnerLossMs: 300_000,
  reconcileIntervalMs: 10_000,
  captureGraceMs: 30_000,
  openRequestsPerOrganization: 256,
  openStreamsPerOrganization: 10_000,
  wrongKeysPerMinute: 300,
  sandboxesPerOrganization: 1000,
  vcpusPerOrganization: 0,
  memMiBPerOrganization: 0,
  requestsPerSecond: 1000,
  requestBurst: 2000,
  creditGraceMs: 300_000,
  accountIntervalMs: 10_000,
  controlLeaseMs: 15_000,
  controlSettleMs: 30_000,
  snapshotBytesPerOrganization: 100 * 2 ** 30,
  disksPerOrganization: 100,
  diskGbPerOrganization: 1024,
  diskDetachDeadlineMs: 20_000,
  webhookDeadlineMs: 15_000,
  webhookRetryDelaysMs: RETRY_DELAYS_MS,
  webhookFailingMs: 5 * 86_400_000,
  execOutputBytes: 16 << 20,
  execOutputTotalBytes: 512 << 20,
};

export interface ControlConfig {
  version: string;
  /** `port` 0 takes a free one. */
  listen: { host: string; port: number };
  /** Where runners join and other controls forward requests; without it nothing listens for them. */
  internalListen?: { host: string; port: number };
  /** `host:port` at which other controls reach it; default: that of `internalListen`. */
  internalAddress?: string;
  /** `max-age` of Strict-Transport-Security under TLS; 0 sends none. */
  hstsSeconds: number;
  /** Addresses and ranges of proxies whose X-Forwarded-For is believed. */
  trustedProxies: readonly string[];
  /** Origins whose pages may use the API, `*` for any. */
  corsOrigins: readonly string[];
  /** Region segment of this service's API keys. */
  region: string;
  /** Addresses of the services of other regions, by region, for callers whose key belongs there. */
  regionAddresses?: ReadonlyMap<string, string>;
  /** Domain under which browsers see ports of sandboxes. */
  previewDomain: PreviewDomain;
  /** Absolute; holds `postgres/`. */
  dataDir: string;
  /** With less free space on the file system of the data directory, uploads that wait there are refused. Default: 2048. */
  diskReserveMiB?: number;
  /** Absolute and short (Unix sockets have 107 bytes); holds `postgres/`, which is emptied at start. */
  runDir: string;
  runnerSocket: string;
  /** Directory of `initdb` and `postgres`, for example /usr/lib/postgresql/15/bin; unused with `databaseUrl`. */
  postgresBin: string;
  /** A PostgreSQL to use instead of a child process. */
  databaseUrl?: string;
  /** A fixed first API key, for automation; without it the first start generates one. */
  bootstrapKey?: string;
  /** A fixed invitation for an owner of the first organization, for automation, and where no owner can sign in. */
  bootstrapInvitation?: string;
  /** Directory for files with key and invitation of a new installation, if they must not be shown. */
  bootstrapDir?: string;
  /** The people who may create an account; default: `invited`. */
  signUp?: SignUpMode;
  /** Credit that every organization gets at first, in cents; without it credit is off. */
  creditCents?: number;
  /** Default: a directory in `dataDir`. */
  objectStore?: ObjectStoreConfig;
  /** Ranges of private, loopback or own addresses to which webhooks may be sent, without TLS if need be. */
  webhookOpenRanges?: readonly string[];
  /** File of the authorities by which receivers of webhooks are verified; default: that of the system. */
  certificatesPath?: string;
  /** Without it only built-in profiles and services. */
  egress?: EgressSettings;
  /** Opens `GET /metrics`; without it there is no such route. */
  metricsToken?: string;
  /** Whether the trace of a request continues that of its caller; else it has a link to it. */
  continuesTraces?: boolean;
  /** Directory of the documentation that set-up built; without it there is no `/docs`. */
  documentationDir?: string;
  /** Directory of the dashboard that set-up built; without it there is no page at `/`. */
  dashboardDir?: string;
  limits?: Partial<ControlLimits>;
}
