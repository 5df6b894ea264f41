/**
 * Makes a module of every example, compiles all of them with the types of the client, and runs them one after the other
 * in a process of their own, whose directory has the files that the examples name.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Example } from './find-examples.ts';
import type { Place } from './given.ts';

const REPOSITORY = fileURLToPath(new URL('../../../..', import.meta.url));
/** Inside the repository, so that the programs find the types of Node.js. */
const CACHE = join(REPOSITORY, '.cache');
const HERE = fileURLToPath(new URL('.', import.meta.url));
const CLIENT = join(REPOSITORY, 'packages/sdk/src/index.ts');
const MOCK = join(REPOSITORY, 'packages/sdk/src/mock/index.ts');
const COMPILE_TIMEOUT_MS = 4 * 60_000;
const RUN_TIMEOUT_MS = 9 * 60_000;

/** Texts of the examples that stand for values of the reader. */
const PLACEHOLDERS: [text: string, value: string][] = [
  ["'run0123456789abcdef0123'", 'given.sandboxId'],
  ["'snap0123456789abcdef0123'", 'given.snapshotId'],
  ["'cmd0123456789abcdef0123'", 'given.detachedId'],
  ["'hook0123456789abcdef0123'", 'given.hookId'],
  ["'build0123456789abcdef0123'", 'given.buildId'],
  ["'context0123456789abcdef0123'", 'given.contextId'],
  ["'http://127.0.0.1:8080'", 'given.place.baseUrl'],
  ["'cop_live_us_…'", 'given.place.apiKey'],
  ["'node:22-slim'", 'given.place.image'],
  ["'python:3.12-slim'", 'given.place.image'],
  ["'coppice/base:1'", 'given.place.image'],
];

export interface Program {
  place: string;
  file: string;
  code: string;
}

export interface Result {
  place: string;
  /** Undefined if the example ran to its end. */
  error?: string;
}

export class Programs implements AsyncDisposable {
  readonly #directory: string;
  readonly #programs: Program[];

  private constructor(directory: string, programs: Program[]) {
    this.#directory = directory;
    this.#programs = programs;
  }

  static async write(examples: readonly Example[]): Promise<Programs> {
    await mkdir(CACHE, { recursive: true });
    const directory = await mkdtemp(join(CACHE, 'sdk-examples-'));
    const programs = examples.map(({ place, code }, index) => {
      const filled = PLACEHOLDERS.reduce((text, [from, to]) => text.replaceAll(from, to), code);
      // In its sources, `command` is what the module is about.
      const command = place.includes('/src/commands/') ? 'detached' : 'spawned';
      const isMade =
        /\b(?:const|using) command\b|\{ command \}/u.test(filled) || !/\bcommand\./u.test(filled);
      return {
        place,
        file: join(directory, `example-${index}.ts`),
        code: isMade ? filled : `const command = given.${command};\n${filled}`,
      };
    });
    await Promise.all(programs.map(({ file, code }) => writeFile(file, render(code))));
    return new Programs(directory, programs);
  }

  /** Returns the messages of the compiler, with the places of the examples. */
  async compile(): Promise<string[]> {
    const tsconfig = { extends: join(REPOSITORY, 'tsconfig.json'), include: ['*.ts'], exclude: [] };
    await writeFile(join(this.#directory, 'tsconfig.json'), JSON.stringify(tsconfig));
    const compiler = join(REPOSITORY, 'node_modules/.bin/tsc');
    const args = [compiler, '--noEmit', '--pretty', 'false', '-p', this.#directory];
    const output = await promisify(execFile)(process.execPath, args, { timeout: COMPILE_TIMEOUT_MS }).then(
      ({ stdout }) => stdout,
      (error: { stdout: string }) => error.stdout,
    );
    return output
      .split('\n')
      .filter((line) => line.includes('error TS'))
      .map((line) =>
        line.replace(/^\S*example-(\d+)\.ts/u, (_, index) => this.#programs[Number(index)]?.place ?? ''),
      );
  }

  /** Runs the programs. */
  async run(place: Place): Promise<Result[]> {
    const directory = await mkdtemp(join(tmpdir(), 'coppice-examples-'));
    try {
      await writeFile(join(directory, 'plan.json'), JSON.stringify({ place, programs: this.#programs }));
      await writeFile(join(directory, 'dump.sql'), 'SELECT 1;\n');
      await promisify(execFile)('tar', ['-czf', 'site.tar.gz', 'dump.sql'], { cwd: directory });
      const env = {
        PATH: process.env['PATH'],
        SANDBOX_API_KEY: place.apiKey,
        SANDBOX_BASE_URL: place.baseUrl,
        OPENAI_API_KEY: 'sk-a',
        REGISTRY_TOKEN: 'token',
      };
      const options = { cwd: directory, env, timeout: RUN_TIMEOUT_MS, maxBuffer: 2 ** 26 };
      await promisify(execFile)(process.execPath, [join(HERE, 'run-examples.ts')], options);
      return JSON.parse(await readFile(join(directory, 'results.json'), 'utf8')) as Result[];
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** The example is a block of its own, so that it may declare the names that it is given otherwise. */
function render(code: string): string {
  const body = code.replaceAll(/^import .* from '(?:@coppice\/sdk(?:\/mock)?|node:[\w/]+)';$/gmu, '');
  return [
    `import { createReadStream, createWriteStream, openAsBlob, readFileSync } from 'node:fs';`,
    `import { readFile } from 'node:fs/promises';`,
    `import { Readable, Writable } from 'node:stream';`,
    `import { Coppice, CoppiceError, ForkError, parseAuditLine, parseOrganizationAuditLine, Sandbox, verifyAudit, verifyOrganizationAudit, verifyWebhook } from '${CLIENT}';`,
    `import { MockService } from '${MOCK}';`,
    `import type { Given } from '${join(HERE, 'given.ts')}';`,
    `export async function run(given: Given): Promise<void> {`,
    `const [hook, webhookSecret, request] = [given.hookId, 'a secret', new Request('http://127.0.0.1/')];`,
    `const { client, sandbox, snapshot, preview, shell, terminal } = given;`,
    `const { apiKey } = given.place;`,
    `const organizationSecret = 'not the secret of the organization';`,
    `const [teamSecret, url, script] = ['not the secret of the team', 'postgres://127.0.0.1', 'echo hi'];`,
    `const work = async (children: Sandbox[]): Promise<void> => void children;`,
    `{`,
    body,
    `}}`,
  ].join('\n');
}
