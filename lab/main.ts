/** The commands of `npm run lab`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runMain } from '../scripts/setup/entry.mjs';
import { REPOSITORY } from '../scripts/setup/paths.mjs';
import { run } from '../scripts/setup/run-command.mjs';
import { SetupError } from '../scripts/setup/setup-error.mjs';
import { ensureHostImage, nameHostImage, type Debian } from './host-image.ts';
import { LabHost } from './host.ts';
import { compileService, copyCheckout, installService, setUp } from './install.ts';
import { LabService } from './lab-service.ts';
import { Ledger } from './ledger.ts';
import { checkOtherCpu } from './other-cpu.ts';
import { Owner } from './owner.ts';
import { parseKind, runPowerCuts, type Kind } from './power-cuts.ts';
import { ensureOwnDirectory } from './private-directory.ts';
import { Results } from './results.ts';
import { ensureSecrets, type Secrets } from './secrets.ts';
import { checkServiceLife } from './service-life.ts';
import { checkShortList, SMALL } from './short-list.ts';

const GIT_TIMEOUT_MS = 60_000;
const OPTIONS = {
  debian: { type: 'string', default: '13' },
  quick: { type: 'boolean', default: false },
  directory: { type: 'string', default: '/var/tmp/coppice-lab' },
  port: { type: 'string', default: '28022' },
  cuts: { type: 'string', default: '20' },
  kind: { type: 'string' },
  from: { type: 'string' },
} as const;

interface Lab {
  home: string;
  debian: Debian;
  quick: boolean;
  cuts: number;
  kind: Kind | undefined;
  from: string | undefined;
  host: LabHost;
  service: LabService;
  secrets: Secrets;
  results: Results;
}

const COMMANDS: Readonly<Record<string, (lab: Lab) => Promise<void>>> = {
  build: async ({ home, debian, quick }) => void (await ensureHostImage({ home, debian, quick })),
  install,
  update,
  check,
  service: checkService,
  'other-cpu': compareCpus,
  'power-cuts': cutPower,
  start: serve,
  stop: ({ host }) => host.shutDown(),
  reset,
  shell: openShell,
  destroy,
};

await runMain(async (args) => {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  const [name = ''] = positionals;
  const command = COMMANDS[name];
  if (command === undefined || positionals.length > 1)
    throw new SetupError(`"${positionals.join(' ')}" is not a lab command`, {
      remedy: `use one of ${Object.keys(COMMANDS).join(', ')}`,
    });
  const debian = parseDebian(values.debian);
  const port = parseNumber('port', values.port, { from: 1024, to: 65_534 });
  const home = join(values.directory, `debian-${debian}${values.quick ? '-quick' : ''}`);
  for (const directory of [values.directory, home]) ensureOwnDirectory(directory);
  const secrets = await ensureSecrets(home);
  const host = new LabHost({ directory: home, image: nameHostImage(home), port });
  await using service = new LabService(host, port + 1, secrets);
  const results = new Results(home, name);
  const cuts = parseNumber('cuts', values.cuts, { from: 1, to: 10_000 });
  const kind = values.kind === undefined ? undefined : parseKind(values.kind);
  const { quick, from } = values;
  await command({ home, debian, quick, cuts, kind, from, host, service, secrets, results });
  return results.failed === 0 ? 0 : 1;
});

function parseDebian(text: string): Debian {
  if (text === '12' || text === '13') return text === '12' ? 12 : 13;
  throw new SetupError(`--debian: is "${text}", must be 12 or 13`);
}

function parseNumber(option: string, text: string, { from, to }: { from: number; to: number }): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= from && value <= to) return value;
  throw new SetupError(`--${option}: is "${text}", must be a whole number from ${from} to ${to}`);
}

async function install({ home, debian, quick, host, service, secrets, results }: Lab): Promise<void> {
  if (host.isInstalled)
    throw new SetupError('the host is already installed', {
      remedy:
        'npm run lab -- update brings it to the last commit of this checkout; npm run lab -- destroy removes it',
    });
  await ensureHostImage({ home, debian, quick });
  await results.step('first boot', () => host.start());
  await results.step('clone of this checkout', () => copyCheckout(host));
  await results.step('npm run setup', () => setUp(host));
  await results.step('modules compiled', () => compileService(host));
  await results.step('npm run install-service', () => installService(host, secrets));
  await serveOnce(service, results);
  await results.step('clean shutdown; disk kept', () => host.keepAsInstalled());
}

/** Creates a sandbox once, so that the kept disk has the image and a template of the size that the checks use. */
async function serveOnce(service: LabService, results: Results): Promise<void> {
  await results.step('service ready', () => assertKvm(service));
  await results.step('first sandbox of 256 MiB', async () => {
    const sandbox = await service.client.sandboxes.create(SMALL);
    await sandbox.destroy();
  });
}

async function update({ host, service, results }: Lab): Promise<void> {
  await results.step('boot', () => host.start());
  await results.step('last commit of this checkout', () => copyCheckout(host));
  await results.step('npm run setup', () => setUp(host));
  await results.step('modules compiled', () => compileService(host));
  await host.run('systemctl restart coppice');
  await serveOnce(service, results);
}

async function serve(lab: Lab): Promise<void> {
  const { host, service, results } = lab;
  assertInstalled(lab);
  await results.step('boot', () => host.start());
  await results.step('service ready', () => assertKvm(service));
}

async function assertKvm(service: LabService): Promise<void> {
  const { accelerator } = await service.ready();
  if (accelerator !== 'kvm') throw new SetupError(`the service on the host uses ${accelerator}, not kvm`);
}

function assertInstalled({ home, host }: Lab): void {
  if (!host.isInstalled && !host.isRunning)
    throw new SetupError(`no host is installed in ${home}`, {
      remedy: 'run npm run lab -- install with the same --debian, --quick and --directory',
    });
}

async function check(lab: Lab): Promise<void> {
  await serve(lab);
  const owner = await Owner.signIn(lab.service, lab.secrets);
  await checkShortList({ ...lab, owner });
  tell(lab.results);
}

async function checkService(lab: Lab): Promise<void> {
  const from = lab.from ?? (await findLastRelease());
  await serve(lab);
  await checkServiceLife({ ...lab, from });
  tell(lab.results);
}

async function findLastRelease(): Promise<string> {
  const step = 'looking for the last release';
  const words = ['-C', REPOSITORY, 'describe', '--tags', '--abbrev=0'];
  const { exitCode, stdout } = await run('git', words, {
    step,
    timeoutMs: GIT_TIMEOUT_MS,
    allowFailure: true,
  });
  if (exitCode === 0) return stdout.trim();
  throw new SetupError('this checkout has no release tag to upgrade from', {
    remedy: 'name a revision: npm run lab -- service --from <revision>',
  });
}

async function compareCpus(lab: Lab): Promise<void> {
  await serve(lab);
  await checkOtherCpu(lab);
  tell(lab.results);
}

async function cutPower(lab: Lab): Promise<void> {
  assertInstalled(lab);
  const ledger = new Ledger(lab.home);
  const signIn = (): Promise<Owner> => Owner.signIn(lab.service, lab.secrets);
  await runPowerCuts({ ...lab, ledger, signIn }, lab.cuts, lab.kind);
  tell(lab.results);
}

async function reset(lab: Lab): Promise<void> {
  const { host, home } = lab;
  assertInstalled(lab);
  await host.reset();
  await rm(join(home, 'ledger.json'), { force: true });
}

async function openShell({ host }: Lab): Promise<void> {
  await host.start();
  const ssh = spawn('ssh', ['-t', ...host.sshWords, 'root@127.0.0.1'], { stdio: 'inherit' });
  await once(ssh, 'exit');
}

async function destroy({ host, home }: Lab): Promise<void> {
  await host.cutPower();
  await rm(home, { recursive: true, force: true });
}

function tell(results: Results): void {
  process.stdout.write(`\n${results.summary()}\n`);
}
