/** All routes below `/v1`. */
import type { App } from './app.ts';
import { addCommandOutput } from './endpoints/commands/command-output.ts';
import { addCommandStdin } from './endpoints/commands/command-stdin.ts';
import { addCreateCommand } from './endpoints/commands/create-command.ts';
import { addGetCommand } from './endpoints/commands/get-command.ts';
import { addListCommands } from './endpoints/commands/list-commands.ts';
import { addSignalCommand } from './endpoints/commands/signal-command.ts';
import { addWaitCommand } from './endpoints/commands/wait-command.ts';
import { addListEvents } from './endpoints/events/list-events.ts';
import { addBuildImage } from './endpoints/images/build-image.ts';
import { addBuildRoutes } from './endpoints/images/build-routes.ts';
import { addCreatePreview } from './endpoints/ports/create-preview.ts';
import { addCreateRun } from './endpoints/runs/create-run.ts';
import { addCreateSnapshot } from './endpoints/copies/create-snapshot.ts';
import { addCreateTicket } from './endpoints/exec/create-ticket.ts';
import { addCreateDisk } from './endpoints/disks/create-disk.ts';
import { addListDisks } from './endpoints/disks/list-disks.ts';
import { addGetDisk } from './endpoints/disks/get-disk.ts';
import { addPatchDisk } from './endpoints/disks/patch-disk.ts';
import { addDeleteDisk } from './endpoints/disks/delete-disk.ts';
import { addFlushDisk } from './endpoints/disks/flush-disk.ts';
import { addExportDisk } from './endpoints/disks/export-disk.ts';
import { addImportDisk } from './endpoints/disks/import-disk.ts';
import { addForkDisk } from './endpoints/disks/fork-disk.ts';
import { addCreateDiskSnapshot } from './endpoints/disks/create-disk-snapshot.ts';
import { addListDiskSnapshots } from './endpoints/disks/list-disk-snapshots.ts';
import { addDeleteDiskSnapshot } from './endpoints/disks/delete-disk-snapshot.ts';
import { addDeletePreview } from './endpoints/ports/delete-preview.ts';
import { addDeleteRegistry } from './endpoints/images/delete-registry.ts';
import { addDeleteRun } from './endpoints/runs/delete-run.ts';
import { addDeleteSnapshot } from './endpoints/copies/delete-snapshot.ts';
import { addExecStream } from './endpoints/exec/exec-stream.ts';
import { addExecWebSocket } from './endpoints/exec/exec-websocket.ts';
import { addExec } from './endpoints/exec/exec.ts';
import { addForkRun } from './endpoints/copies/fork-run.ts';
import { addGetAudit } from './endpoints/records/get-audit.ts';
import { addGetCredentials } from './endpoints/network/get-credentials.ts';
import { addGetNetwork } from './endpoints/network/get-network.ts';
import { addGetMetrics } from './endpoints/runs/get-metrics.ts';
import { addGetOrganizationAudit } from './endpoints/records/get-organization-audit.ts';
import { addGetRun } from './endpoints/runs/get-run.ts';
import { addGetStatement } from './endpoints/records/get-statement.ts';
import { addGetTree } from './endpoints/runs/get-tree.ts';
import { addBudgetRoutes } from './endpoints/records/budgets.ts';
import { addGetUsage } from './endpoints/records/get-usage.ts';
import { addHibernateRun } from './endpoints/copies/hibernate-run.ts';
import { addListHistory } from './endpoints/runs/list-history.ts';
import { addListImages } from './endpoints/images/list-images.ts';
import { addListNetworkProfiles } from './endpoints/network/list-network-profiles.ts';
import { addListPreviews } from './endpoints/ports/list-previews.ts';
import { addListRegistries } from './endpoints/images/list-registries.ts';
import { addListRuns } from './endpoints/runs/list-runs.ts';
import { addGetSnapshot } from './endpoints/copies/get-snapshot.ts';
import { addListSnapshots } from './endpoints/copies/list-snapshots.ts';
import { addPatchSnapshot } from './endpoints/copies/patch-snapshot.ts';
import { addPatchRun } from './endpoints/runs/patch-run.ts';
import { addPortProxy } from './endpoints/ports/port-proxy.ts';
import { addPutCredentials } from './endpoints/network/put-credentials.ts';
import { addPutNetwork } from './endpoints/network/put-network.ts';
import { addPutRegistry } from './endpoints/images/put-registry.ts';
import { addRestoreRun } from './endpoints/copies/restore-run.ts';
import { addResumeRun } from './endpoints/copies/resume-run.ts';
import { addRollbackRun } from './endpoints/copies/rollback-run.ts';
import { addShellWebSocket } from './endpoints/exec/shell-websocket.ts';
import { addGetSsh } from './endpoints/exec/get-ssh.ts';
import { addSshWebSocket } from './endpoints/exec/ssh-websocket.ts';
import { addTerminalWebSocket } from './endpoints/exec/terminal-websocket.ts';
import { addDeleteSecret } from './endpoints/secrets/delete-secret.ts';
import { addGetSecret } from './endpoints/secrets/get-secret.ts';
import { addListSecrets } from './endpoints/secrets/list-secrets.ts';
import { addPutSecret } from './endpoints/secrets/put-secret.ts';
import { addCreateWebhook } from './endpoints/webhooks/create-webhook.ts';
import { addListWebhooks } from './endpoints/webhooks/list-webhooks.ts';
import { addGetWebhook } from './endpoints/webhooks/get-webhook.ts';
import { addPatchWebhook } from './endpoints/webhooks/patch-webhook.ts';
import { addDeleteWebhook } from './endpoints/webhooks/delete-webhook.ts';
import { addRotateWebhook } from './endpoints/webhooks/rotate-webhook.ts';
import { addTestWebhook } from './endpoints/webhooks/test-webhook.ts';
import { addListDeliveries } from './endpoints/webhooks/list-deliveries.ts';
import { addRetryDelivery } from './endpoints/webhooks/retry-delivery.ts';
import { addFileRoutes } from './endpoints/files/file-routes.ts';
import type { HttpParts } from './parts.ts';

const ADD_ROUTES: readonly ((v1: App, parts: HttpParts) => void)[] = [
  addCreateRun,
  addListRuns,
  addListHistory,
  addGetUsage,
  addGetStatement,
  addBudgetRoutes,
  addGetRun,
  addGetAudit,
  addGetOrganizationAudit,
  addDeleteRun,
  addPatchRun,
  addForkRun,
  addHibernateRun,
  addResumeRun,
  addRollbackRun,
  addRestoreRun,
  addGetTree,
  addGetMetrics,
  addListNetworkProfiles,
  addGetNetwork,
  addPutNetwork,
  addGetCredentials,
  addPutCredentials,
  addCreateSnapshot,
  addListSnapshots,
  addGetSnapshot,
  addPatchSnapshot,
  addDeleteSnapshot,
  addListEvents,
  addCreateWebhook,
  addListWebhooks,
  addGetWebhook,
  addPatchWebhook,
  addDeleteWebhook,
  addRotateWebhook,
  addTestWebhook,
  addListDeliveries,
  addRetryDelivery,
  addCreateDisk,
  addListDisks,
  addGetDisk,
  addPatchDisk,
  addDeleteDisk,
  addFlushDisk,
  addForkDisk,
  addImportDisk,
  addExportDisk,
  addCreateDiskSnapshot,
  addListDiskSnapshots,
  addDeleteDiskSnapshot,
  addCreateCommand,
  addListCommands,
  addGetCommand,
  addCommandOutput,
  addCommandStdin,
  addSignalCommand,
  addWaitCommand,
  addExec,
  addExecStream,
  addExecWebSocket,
  addShellWebSocket,
  addTerminalWebSocket,
  addGetSsh,
  addSshWebSocket,
  addCreateTicket,
  addPortProxy,
  addCreatePreview,
  addListPreviews,
  addDeletePreview,
  addFileRoutes,
  addListImages,
  addBuildImage,
  addBuildRoutes,
  addPutRegistry,
  addListRegistries,
  addDeleteRegistry,
  addPutSecret,
  addListSecrets,
  addGetSecret,
  addDeleteSecret,
];

export function addV1Routes(v1: App, parts: HttpParts): void {
  for (const addRoute of ADD_ROUTES) addRoute(v1, parts);
}
