/** The package as users install it: packed by npm, installed into an empty project without a network, compiled and run. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const COMPILER = fileURLToPath(new URL('../../../node_modules/.bin/tsc', import.meta.url));
/** Types of Node.js, as a program for a server has them. */
const TYPES = fileURLToPath(new URL('../../../node_modules/@types', import.meta.url));
const TIMEOUT_MS = 4 * 60_000;

/** A program as a user writes it. It uses types of both entries, and runs without a service. */
const PROGRAM = `
import { Coppice, CoppiceError, Sandbox, type ErrorCode, type SandboxInfo } from '@coppice/sdk';
import { MockService } from '@coppice/sdk/mock';

const service = new MockService({ onExec: ({ command }) => ({ stdout: command.toUpperCase() }) });
const client = new Coppice(service.clientOptions);
const sandbox: Sandbox = await client.sandboxes.getOrCreate({ name: 'packed' });
const info: SandboxInfo = await sandbox.info();
const { stdout } = await sandbox.exec('hello');
const code: ErrorCode | undefined = await client.usage().then(
  () => undefined,
  (error: unknown) => (error instanceof CoppiceError ? error.code : undefined),
);
// @ts-expect-error -- there is no such option
await client.sandboxes.create({ memMib: 1 }).catch(() => undefined);
console.log(JSON.stringify({ name: info.name, stdout, code }));
`;

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'coppice-pack-'));
});
after(() => rm(directory, { recursive: true, force: true }));

const execute = promisify(execFile);

/** Runs a program with this Node.js first in PATH. Settings of an npm that runs this test are left out. */
async function run(command: string, args: string[], cwd: string): Promise<string> {
  const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/iu.test(name));
  const path = [dirname(process.execPath), process.env['PATH']].join(delimiter);
  const env = { ...Object.fromEntries(inherited), PATH: path, npm_config_cache: join(directory, 'cache') };
  try {
    return (await execute(command, args, { cwd, env, timeout: TIMEOUT_MS })).stdout;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`, { cause: error });
  }
}

async function pack(): Promise<{ filename: string; files: string[] }> {
  const args = ['pack', '--json', '--silent', '--pack-destination', directory];
  const [packed] = JSON.parse(await run('npm', args, PACKAGE)) as {
    filename: string;
    files: { path: string }[];
  }[];
  assert.ok(packed);
  return { filename: packed.filename, files: packed.files.map(({ path }) => path) };
}

test('the packed client installs into an empty project without a network, compiles under both resolutions, and runs', async () => {
  const { filename, files } = await pack();
  for (const file of [
    'README.md',
    'CHANGELOG.md',
    'LICENSE',
    'package.json',
    'dist/index.d.ts',
    'dist/mock/index.js',
  ])
    assert.ok(files.includes(file), `${file} is missing from the package`);
  const unwanted = files.filter((file) => /\.test\.|\/testing\/|(?<!\.d)\.ts$|tsconfig/u.test(file));
  assert.deepEqual(unwanted, []);

  const project = join(directory, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), JSON.stringify({ type: 'module', private: true }));
  await writeFile(join(project, 'program.ts'), PROGRAM);
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', join(directory, filename)], project);

  const page = { lib: ['es2022', 'dom', 'dom.asynciterable', 'esnext.disposable'], types: [] };
  const server = { lib: ['es2022'], types: ['node'], typeRoots: [TYPES] };
  for (const [module, moduleResolution, platform] of [
    ['node16', 'node16', page],
    ['node16', 'node16', server],
    ['esnext', 'bundler', page],
  ] as const) {
    const outDir = `${moduleResolution}-${platform.types.join('')}`;
    const compilerOptions = {
      module,
      moduleResolution,
      ...platform,
      target: 'es2022',
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      outDir,
    };
    await writeFile(
      join(project, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, files: ['program.ts'] }),
    );
    await run(process.execPath, [COMPILER, '-p', project], project);
    const printed = await run(process.execPath, [join(project, outDir, 'program.js')], project);
    assert.deepEqual(JSON.parse(printed), { name: 'packed', stdout: 'HELLO', code: 'not_mocked' });
  }
});
