export type {
  HistoryEntry,
  HistoryOptions,
  Statement,
  StatementDisk,
  StatementLine,
  StatementSums,
  Usage,
} from './billing.ts';
export { DEFAULT_BASE_URL } from './transport/base-url.ts';
export type { BuildProgress } from './streams/build-events.ts';
export type { AuditOptions } from './audit/audit.ts';
export { parseAuditLine } from './audit/audit-entry.ts';
export type { AuditEntry, AuditHead } from './audit/audit-entry.ts';
export { parseOrganizationAuditLine } from './audit/organization-audit-entry.ts';
export type { OrganizationAuditEntry } from './audit/organization-audit-entry.ts';
export type { CallOptions, ClientOptions, FetchFunction } from './transport/client-options.ts';
export type { OutputBytes, OutputChunk, OutputListeners } from './streams/collected-output.ts';
export type { CommandStdin } from './streams/command-stdin.ts';
export type { CommandExit } from './streams/command-stream.ts';
export { Coppice } from './coppice.ts';
export type { CreateCallOptions } from './transport/post-once.ts';
export type {
  CreateDiskOptions,
  DiskDurability,
  DiskImageFormat,
  DiskInfo,
  DiskSnapshotInfo,
  ExportDiskOptions,
  ForkDiskOptions,
  ImportDiskOptions,
  ListDisksOptions,
  SnapshotDiskOptions,
} from './disks.ts';
export { DEFAULT_IMAGE } from './sandbox/lifecycle.ts';
export type { CreateOptions } from './sandbox/lifecycle.ts';
export type { GetOrCreateOptions } from './sandbox/get-or-create.ts';
export type {
  CredentialEndpoint,
  CredentialInfo,
  CredentialOptions,
  CredentialWithRules,
  EgressOptions,
  NetworkCounters,
  NetworkInfo,
  NetworkProfile,
  NetworkRules,
  SecretReference,
} from './egress.ts';
export type { EventInfo, LostEvents } from './events/event-record.ts';
export type { EventsOptions, ListEventsOptions } from './events/events.ts';
export { CoppiceError } from './transport/errors.ts';
export type { ClientErrorCode, ErrorCode, ServiceErrorCode } from './transport/errors.ts';
export { Command, type CommandInputOptions } from './commands/command.ts';
export type { CommandOutput, CommandOutputOptions } from './commands/command-output.ts';
export type { CommandInfo, CommandState } from './commands/command-record.ts';
export {
  SandboxCommands,
  type ListCommandsOptions,
  type StartCommandOptions,
} from './commands/sandbox-commands.ts';
export type { ExecOptions, ExecResult } from './streams/exec.ts';
export type {
  DownloadOptions,
  DownloadStreamOptions,
  FileEntry,
  ListFilesOptions,
  UploadOptions,
  UploadResult,
} from './sandbox/files.ts';
export type {
  FileInfo,
  MakeDirectoryOptions,
  MoveFileOptions,
  RecursiveOptions,
} from './sandbox/file-changes.ts';
export type { DownloadArchiveOptions, UnpackResult, UploadArchiveOptions } from './sandbox/file-archives.ts';
export type { FileLink, FileLinkOptions } from './sandbox/file-links.ts';
export type { FileEvent, WatchFilesOptions } from './sandbox/file-events.ts';
export { SandboxFiles } from './sandbox/sandbox-files.ts';
export type { FileContent } from './transport/upload.ts';
export { ForkError } from './sandbox/forks.ts';
export type {
  GuestReport,
  MetricsNow,
  MetricsOptions,
  MetricsPoint,
  NetworkUsage,
  SandboxMetrics,
} from './sandbox/metrics.ts';
export type { SandboxTree, SandboxTreeNode } from './sandbox/forks.ts';
export type { BuildOptions, ImageInfo, Images, ReadyShape, Shape } from './images.ts';
export type { BuildRequest, BuildStep, CopyStep, ImageBuilds, RunBuildOptions } from './image-builds.ts';
export type { ImageBuildEvent, ImageBuildInfo } from './image-build-record.ts';
export type { PagedList } from './transport/paged-list.ts';
export type { Preview, PreviewInfo, PreviewOptions } from './sandbox/previews.ts';
export type { Budget, BudgetOptions, Budgets } from './budgets.ts';
export type { Registries, RegistryInfo, RegistryLogin } from './registries.ts';
export { Sandbox } from './sandbox/sandbox.ts';
export type { DestroyResult, SandboxDiskInfo, SandboxInfo, SandboxStatus } from './sandbox/sandbox-record.ts';
export type { SandboxEgress } from './sandbox/sandbox-egress.ts';
export type { SandboxLife } from './sandbox/sandbox-life.ts';
export type { SandboxGuest } from './sandbox/sandbox-guest.ts';
export type { ForkOptions } from './sandbox/forks.ts';
export type { ResumeOptions } from './sandbox/lifecycle.ts';
export type { SandboxSettings } from './sandbox/settings.ts';
export type { ListOptions, Sandboxes } from './sandbox/sandboxes.ts';
export type { Organization, OrganizationAuditOptions } from './organization.ts';
export type { SecretInfo, Secrets } from './secrets.ts';
export type { Shell, ShellOptions, ShellResult } from './streams/shell.ts';
export type {
  ListSnapshotsOptions,
  RestoreOptions,
  SnapshotChanges,
  SnapshotInfo,
  SnapshotOptions,
  Snapshots,
} from './sandbox/snapshots.ts';
export type { SpawnedCommand, SpawnOptions } from './streams/spawned-command.ts';
export type { SshConnection, SshOptions } from './streams/ssh.ts';
export type { Terminal, TerminalExit, TerminalOptions } from './streams/terminal.ts';
export type { Ticket, TicketOptions } from './streams/tickets.ts';
export { verifyAudit } from './audit/verify-audit.ts';
export type { VerifyAuditOptions } from './audit/verify-audit.ts';
export { verifyOrganizationAudit } from './audit/verify-organization-audit.ts';
export type { VerifyOrganizationAuditOptions } from './audit/verify-organization-audit.ts';
export type { AuditProblem, AuditVerdict } from './audit/audit-verdict.ts';
export {
  verifyWebhook,
  WebhookVerificationError,
  type VerifyWebhookOptions,
  type WebhookHeaders,
  type WebhookMessage,
} from './webhooks/verify-webhook.ts';
export type {
  CreatedWebhook,
  DeliveryAttempt,
  DeliveryInfo,
  WebhookInfo,
} from './webhooks/webhook-record.ts';
export type {
  CreateWebhookOptions,
  ListDeliveriesOptions,
  RotateWebhookOptions,
  WebhookOptions,
  Webhooks,
} from './webhooks/webhooks.ts';
export type { WebSocketConstructor, WebSocketLike, WebSocketLikeEvent } from './streams/web-socket.ts';
