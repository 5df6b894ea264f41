/** Opens what the runner needs for persistent disks: the block server, and the disks that VMs of this runner have. */
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { findFile } from '../lib/files/find-file.ts';
import { writeDurably } from '../lib/files/durable-file.ts';
import type { VmAccounts } from './confinement/vm-accounts.ts';
import { giveTo } from './host/file-owner.ts';
import { idDirectoryOf } from './identity/runner-id.ts';
import type { RunnerConfig } from './runner-config.ts';
import { BLOCK_SOCKET } from './vm/workspace-device.ts';
import { BlockServer } from './workspace/block-server.ts';
import { Workspaces } from './workspace/workspaces.ts';

const MIB = 1024 * 1024;

export interface OpenedDisks {
  server: BlockServer;
  workspaces: Workspaces;
  /** Directory of the block server's socket. */
  serverDirectory: string;
  /** Directory of the VMs' overlays. */
  directory: string;
}

export function openDisks(config: RunnerConfig, accounts: VmAccounts, log: Logger): OpenedDisks {
  const { dataDir, runDir, tools, objectStore, storeVariables = {}, diskCacheMiB } = config;
  const directory = idDirectoryOf(dataDir);
  const serverDirectory = join(runDir, 'b');
  for (const path of [directory, serverDirectory]) {
    mkdirSync(path, { recursive: true, mode: 0o711 });
    chmodSync(path, 0o711);
  }
  const isShared = objectStore !== 'directory';
  const uid = process.getuid?.() === 0 ? accounts.blocks : undefined;
  const server = new BlockServer({
    program: tools.blocks,
    store: objectStore,
    objectsDirectory: own(join(dataDir, 'disks'), uid),
    // A directory on this host needs no cache on it.
    ...(isShared && diskCacheMiB > 0
      ? { cache: { directory: own(join(dataDir, 'disk-cache'), uid), mib: diskCacheMiB } }
      : {}),
    overlaysDirectory: directory,
    socketPath: join(serverDirectory, BLOCK_SOCKET),
    ...(uid !== undefined && { uid }),
    exportKey: openExportKey(dataDir),
    environment: { ...storeVariables, HOME: process.env['HOME'] ?? '/' },
    log,
  });
  const workspaces = new Workspaces({
    server,
    directory,
    serverDirectory,
    maxDirtyBytes: config.diskBacklogMiB * MIB,
    log,
  });
  return { server, workspaces, serverDirectory, directory };
}

function own(path: string, uid: number | undefined): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  if (uid !== undefined) giveTo(path, uid);
  return path;
}

/** The key outlives the runner: VMs connect again with the names that they have. */
function openExportKey(dataDir: string): string {
  const path = join(dataDir, 'export-key');
  let secret = findFile(path);
  if (secret === undefined) {
    secret = randomBytes(32);
    writeDurably(path, secret);
  }
  return createHash('sha256').update(secret).digest('hex');
}
