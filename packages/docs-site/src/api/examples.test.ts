/** Examples in TypeScript, of the API and of the guides, compile against the client as it is. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { buildCurl } from './curl-example.ts';
import { listOperations, readOpenApi } from './openapi-document.ts';
import { readExamples } from './typescript-example.ts';

const REPOSITORY = fileURLToPath(new URL('../../../../', import.meta.url));
const CACHE = join(REPOSITORY, '.cache');
const DOCUMENT = readOpenApi(join(REPOSITORY, 'docs/reference/openapi.json'));
const TIMEOUT_MS = 120_000;

/** The names that examples use without declaring them. */
const GLOBALS = `
import type * as sdk from '@coppice/sdk';
import type * as fs from 'node:fs';
import type * as promises from 'node:fs/promises';
import type * as stream from 'node:stream';
declare global {
  type Command = sdk.Command;
  type Coppice = sdk.Coppice;
  type Sandbox = sdk.Sandbox;
  type SnapshotInfo = sdk.SnapshotInfo;
  const ForkError: typeof sdk.ForkError;
  const CoppiceError: typeof sdk.CoppiceError;
  const verifyAudit: typeof sdk.verifyAudit;
  const openAsBlob: typeof fs.openAsBlob;
  const createReadStream: typeof fs.createReadStream;
  const createWriteStream: typeof fs.createWriteStream;
  const readFile: typeof promises.readFile;
  const Readable: typeof stream.Readable;
  const Writable: typeof stream.Writable;
  const snapshot: SnapshotInfo;
  function work(given: Sandbox | Sandbox[]): Promise<void>;
  const preview: sdk.PreviewInfo;
  const request: Request;
  const webhook: sdk.WebhookInfo;
  const hook: string;
  const delivery: sdk.DeliveryInfo;
  namespace NodeJS {
    interface ProcessEnv {
      OPENAI_API_KEY: string;
      REGISTRY_TOKEN: string;
    }
  }
  const client: Coppice;
  const sandbox: Sandbox;
  const task: Sandbox;
  const command: Command;
  const prepared: SnapshotInfo;
  const archive: ReadableStream<Uint8Array>;
  const candidates: string[];
  function log(text: string): void;
${[
  'apiKey',
  'baseUrl',
  'command',
  'context',
  'diskSnapshot',
  'disk',
  'id',
  'invitation',
  'jobId',
  'key',
  'lockHash',
  'member',
  'month',
  'name',
  'organization',
  'patch',
  'path',
  'port',
  'previewId',
  'registry',
  'runId',
  'script',
  'teamSecret',
  'sandboxId',
  'secret',
  'session',
  'taskId',
  'team',
  'tests',
  'token',
  'url',
]
  .filter((name) => name !== 'command')
  .map((name) => `  const ${name}: string;`)
  .join('\n')}
}
`;

/** Puts an example into a function of its own, with its imports before it. */
function wrap(code: string): string {
  const imports = [...code.matchAll(/^import [^;]+;$/gmu)].map(([line]) => line);
  const rest = imports.reduce((text, line) => text.replace(line, ''), code);
  return `${imports.join('\n')}\nexport async function example(): Promise<void> {\n${rest}\n}\n`;
}

async function compile(examples: ReadonlyMap<string, string>): Promise<string> {
  mkdirSync(CACHE, { recursive: true });
  const directory = mkdtempSync(join(CACHE, 'examples-'));
  try {
    writeFileSync(join(directory, 'globals.d.ts'), GLOBALS);
    for (const [name, code] of examples) writeFileSync(join(directory, `${name}.ts`), wrap(code));
    const options = {
      extends: '../../packages/sdk/tsconfig.json',
      compilerOptions: {
        lib: ['es2024', 'dom', 'dom.iterable', 'dom.asynciterable', 'esnext.disposable'],
        types: ['node'],
        noEmit: true,
        rootDir: '../..',
        allowImportingTsExtensions: true,
        paths: {
          '@coppice/sdk': ['../../packages/sdk/src/index.ts'],
          '@coppice/sdk/mock': ['../../packages/sdk/src/mock/index.ts'],
        },
      },
      include: ['.'],
      exclude: [],
    };
    writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify(options));
    const compiler = join(REPOSITORY, 'node_modules/.bin/tsc');
    return await new Promise((resolve) => {
      execFile(compiler, ['-p', directory], { timeout: TIMEOUT_MS }, (error, stdout) =>
        resolve(error === null ? '' : stdout),
      );
    });
  } finally {
    rmSync(directory, { recursive: true });
  }
}

function listBlocks(file: string): [string, string][] {
  const text = readFileSync(join(REPOSITORY, file), 'utf8');
  const name = file.replaceAll(/[/.]/gu, '-');
  return [...text.matchAll(/^```ts\n([^]*?)^```$/gmu)].map(([, code = ''], index) => [
    `${name}-${index + 1}`,
    code,
  ]);
}

test('examples of all operations and guides compile, and a wrong one does not', async () => {
  const findExample = readExamples(REPOSITORY, DOCUMENT);
  const examples = new Map(
    listOperations(DOCUMENT).map((operation) => [operation.operationId, findExample(operation).code]),
  );
  assert.ok(examples.size > 100);
  const guides = readdirSync(join(REPOSITORY, 'docs/guides')).map((name) => `docs/guides/${name}`);
  const blocks = [...guides, 'packages/sdk/README.md'].flatMap(listBlocks);
  assert.ok(blocks.length >= 40, `${blocks.length} blocks`);
  assert.equal(await compile(new Map([...examples, ...blocks])), '');
  const wrong = new Map([['wrong', 'await sandbox.exec({ command: 1 });']]);
  assert.match(await compile(wrong), /wrong\.ts.*error TS2345/u);
});

test('most operations are shown with the client', () => {
  const findExample = readExamples(REPOSITORY, DOCUMENT);
  const without = listOperations(DOCUMENT)
    .filter(({ path }) => path.startsWith('/v1/'))
    .filter((operation) => !findExample(operation).isClient)
    .map(({ operationId }) => operationId)
    .filter((name) => !name.startsWith('proxy'));
  assert.deepEqual(without, ['statFile'], 'its GET is shown with the client');
});

test('examples of curl have the method, the credential and the required parts', () => {
  const curls = new Map(
    listOperations(DOCUMENT).map((operation) => [operation.operationId, buildCurl(operation, DOCUMENT)]),
  );
  assert.match(curls.get('createSandbox') ?? '', /^curl -s "http:\/\/127\.0\.0\.1:8080\/v1\/runs" \\/u);
  assert.match(curls.get('createSandbox') ?? '', /-d '\{"image":"coppice\/base:1"\}'$/u);
  assert.match(
    curls.get('destroySandbox') ?? '',
    /-X DELETE "http:\/\/127\.0\.0\.1:8080\/v1\/runs\/\$id" \\/u,
  );
  assert.match(curls.get('uploadFile') ?? '', /\?path=\/workspace\/answer\.py" \\[^]*--data-binary @file$/u);
  assert.doesNotMatch(curls.get('getHealth') ?? '', /Authorization/u);
  assert.match(curls.get('signIn') ?? '', /-c cookies\.txt/u);
  assert.equal(curls.get('terminalWebSocket'), undefined);
});
