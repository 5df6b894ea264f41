/** Tests the service under systemd with sandboxes running: restart, kill, reboot of the host, removal, and upgrade. */
import assert from 'node:assert/strict';
import type { Sandbox } from '../packages/sdk/src/index.ts';
import { assertState, writeState } from './guest-state.ts';
import { CHECKOUT } from './host-image.ts';
import type { LabHost } from './host.ts';
import { installService, runNpm } from './install.ts';
import type { LabService } from './lab-service.ts';
import type { Results } from './results.ts';
import type { Secrets } from './secrets.ts';
import { SMALL } from './short-list.ts';
import { waitFor } from './wait-for.ts';

const REBOOT_TIMEOUT_MS = 30 * 60_000;
const KEY_TIMEOUT_MS = 60_000;
const POLL_MS = 2000;

export interface ServiceLifeParts {
  host: LabHost;
  service: LabService;
  secrets: Secrets;
  results: Results;
  /** Revision to upgrade from. */
  from: string;
}

const MAIN_PID = 'systemctl show --property=MainPID --value coppice';
/**
 * Kills the main process and waits until systemd has started a new one: control of the killed service ends a moment
 * later, and answers until then.
 */
const KILL_AND_WAIT = `
  killed=$(${MAIN_PID})
  systemctl kill --signal=KILL --kill-whom=main coppice
  until now=$(${MAIN_PID}) && [ "$now" != 0 ] && [ "$now" != "$killed" ]; do sleep 0.2; done`;

export async function checkServiceLife(parts: ServiceLifeParts): Promise<void> {
  const { host, results, service } = parts;
  const pair = await results.step('two sandboxes', () => makePair(service));
  await results.attempt('systemctl restart: both sandboxes keep running', async () => {
    await host.run('systemctl restart coppice');
    await assertRunOn(service, pair);
  });
  await results.attempt('kill -9 of the service: systemd restarts it, both keep running', async () => {
    await host.run(KILL_AND_WAIT);
    await assertRunOn(service, pair);
  });
  await results.attempt('clean reboot: the hibernated sandbox survives, the other is lost and billed', () =>
    checkReboot(parts, pair),
  );
  await results.attempt('uninstall: only data is left; a new installation has the records', () =>
    checkUninstall(parts, pair),
  );
  await results.attempt('uninstall with --purge leaves nothing', () => checkPurge(parts));
  await results.attempt(`upgrade from ${parts.from}: both keep running`, () => checkUpgrade(parts));
}

interface Pair {
  first: Sandbox;
  second: Sandbox;
}

async function makePair({ client }: LabService): Promise<Pair> {
  const pair = { first: await client.sandboxes.create(SMALL), second: await client.sandboxes.create(SMALL) };
  await writeState(pair.first, 'first');
  await writeState(pair.second, 'second');
  return pair;
}

async function assertRunOn(service: LabService, { first, second }: Pair): Promise<void> {
  await service.ready();
  await assertState(first, 'first');
  await assertState(second, 'second');
}

async function checkReboot({ host, service }: ServiceLifeParts, { first, second }: Pair): Promise<void> {
  await first.hibernate();
  await reboot(host, service);
  assert.equal((await service.ready()).accelerator, 'kvm');
  await first.resume();
  await assertState(first, 'first');
  const lost = await second.info();
  assert.deepEqual([lost.status, lost.statusReason], ['failed', 'vm_lost']);
  const [bill] = await service.client.history({ limit: 1 });
  assert.equal(bill?.id, second.id);
}

async function reboot(host: LabHost, service: LabService): Promise<void> {
  const readBoot = async (): Promise<string> =>
    (await host.run('cat /proc/sys/kernel/random/boot_id', { allowFailure: true })).stdout;
  const before = await readBoot();
  service.disconnect();
  await host.run('systemctl reboot', { allowFailure: true });
  const failure = (): string => 'the host did not reboot in time';
  await waitFor({ timeoutMs: REBOOT_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () => {
    const now = await readBoot();
    return now === before || now === '' ? undefined : now;
  });
}

async function checkUninstall(
  { host, service, secrets }: ServiceLifeParts,
  { first, second }: Pair,
): Promise<void> {
  await runNpm(host, 'run uninstall');
  await assertNothingRuns(host);
  await installService(host, secrets);
  await service.ready();
  assert.equal((await first.info()).status, 'failed');
  const history = await service.client.history();
  for (const { id } of [first, second]) assert.ok(history.some((entry) => entry.id === id));
}

async function assertNothingRuns(host: LabHost): Promise<void> {
  const find = {
    processes: 'pgrep -a qemu-system; pgrep -a -u coppice',
    interfaces: 'ip -o link | grep -o " cop[^:@]*"',
    tables: 'nft list tables | grep coppice',
    unit: 'ls /etc/systemd/system/coppice.service /run/coppice 2>/dev/null',
  };
  for (const [what, command] of Object.entries(find))
    assert.equal(await host.read(`{ ${command}; } || true`), '', what);
}

async function checkPurge({ host }: ServiceLifeParts): Promise<void> {
  await runNpm(host, 'run uninstall -- --purge');
  await assertNothingRuns(host);
  const left = 'ls -d /var/lib/coppice /etc/coppice 2>/dev/null; getent passwd coppice';
  assert.equal(await host.read(`{ ${left}; } || true`), '');
}

async function checkUpgrade({ host, service, secrets, from }: ServiceLifeParts): Promise<void> {
  const current = (await host.read(`git -C ${CHECKOUT} rev-parse HEAD`)).trim();
  await checkOut(host, from);
  await installService(host, secrets);
  await service.ready();
  // Releases until November 2026 answer requests before the configured key is in their database.
  const failure = (): string => 'the service does not accept the configured key';
  await waitFor({ timeoutMs: KEY_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () =>
    (await service.acceptsKey(service.apiKey)) ? true : undefined,
  );
  const pair = await makePair(service);
  await checkOut(host, current);
  await installService(host, secrets);
  await assertRunOn(service, pair);
  for (const sandbox of [pair.first, pair.second]) await sandbox.destroy();
}

async function checkOut(host: LabHost, revision: string): Promise<void> {
  await host.run(`git -C ${CHECKOUT} checkout -q --detach ${revision}`);
}
