/** Control as a process: starts, reports ready to the supervisor, waits for a stop request, and stops. */
import type { Logger } from 'pino';
import { announce } from './announce.ts';
import { useStoreVariables, type Config } from './config/config.ts';
import { startControl } from './control/control.ts';
import { preloadServer } from './control/http/preload.ts';
import { loadSites } from './control/static-site/sites.ts';
import { isJournal } from './lib/files/journal.ts';
import { preloadObjectStore } from './lib/objects/open-object-store.ts';
import { shutdownRequested } from './lib/process/shutdown-signal.ts';
import { TlsReceiver } from './lib/tls/tls-handover.ts';
import { readTlsPair } from './lib/tls/tls-pair.ts';
import { becomeUnprivileged } from './service-account.ts';

const STDOUT = 1;

export async function runControlRole(config: Config, log: Logger): Promise<void> {
  const asked = shutdownRequested();
  const receiver = new TlsReceiver(process);
  // Without a supervisor control must read the pair itself, before the next step makes the key file unreadable.
  const ownPair =
    config.tls === undefined || process.send !== undefined ? undefined : readTlsPair(config.tls);
  const sites = loadSites(config.control, log);
  useStoreVariables(config);
  if (process.getuid?.() === 0) {
    await preloadServer(config.control.version);
    if (config.control.objectStore !== undefined) await preloadObjectStore(config.control.objectStore);
    becomeUnprivileged(config);
  }
  const tls = config.tls === undefined ? undefined : (ownPair ?? (await receiver.first()));
  // Control shares its output with the supervisor, which prints the API key and the invitation. Alone it is started by a
  // program that keeps its output.
  const isKept = process.send === undefined || isJournal(STDOUT);
  const kept = isKept ? { bootstrapDir: config.control.dataDir } : {};
  const control = await startControl({ ...config.control, ...kept }, log, { tls, sites });
  receiver.follow((pair) => control.setTls(pair));
  const { address, bootstrap } = control;
  const hasDashboard = sites.dashboard !== undefined;
  announce({ type: 'control-ready', address, hasDashboard, bootstrap });
  const reason = await Promise.race([asked, control.lost]);
  log.info({ reason: String(reason) }, 'control stops');
  if (reason instanceof Error) process.exitCode = 1;
  await control[Symbol.asyncDispose]();
  process.disconnect?.();
}
