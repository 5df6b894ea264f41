/**
 * Examples in TypeScript: the first `@example` of the client's method, so that they cannot differ from the client. An
 * operation without a method gets a call of `fetch`, made from its schema.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { exampleBody, exampleQuery, isOpen } from './curl-example.ts';
import type { OpenApiDocument, Operation } from './openapi-document.ts';

const SDK = 'packages/sdk/src';
/** File and method of the client for each operation. */
const METHODS: Readonly<Record<string, readonly [file: string, method: string]>> = {
  createSandbox: ['sandbox/sandboxes.ts', 'create'],
  listSandboxes: ['sandbox/sandboxes.ts', 'list'],
  getSandbox: ['sandbox/sandboxes.ts', 'get'],
  restoreSandbox: ['sandbox/sandboxes.ts', 'restore'],
  changeSandbox: ['sandbox/sandbox-life.ts', 'update'],
  destroySandbox: ['sandbox/sandbox-life.ts', 'destroy'],
  forkSandbox: ['sandbox/sandbox-life.ts', 'fork'],
  hibernateSandbox: ['sandbox/sandbox-life.ts', 'hibernate'],
  resumeSandbox: ['sandbox/sandbox-life.ts', 'resume'],
  rollBackSandbox: ['sandbox/sandbox-life.ts', 'rollback'],
  getSandboxTree: ['sandbox/sandbox-life.ts', 'tree'],
  getMetrics: ['sandbox/sandbox-life.ts', 'metrics'],
  getAuditLog: ['sandbox/sandbox-life.ts', 'audit'],
  createSnapshot: ['sandbox/sandbox-life.ts', 'snapshot'],
  listSnapshots: ['sandbox/snapshots.ts', 'list'],
  getSnapshot: ['sandbox/snapshots.ts', 'get'],
  changeSnapshot: ['sandbox/snapshots.ts', 'update'],
  deleteSnapshot: ['sandbox/snapshots.ts', 'delete'],
  listNetworkProfiles: ['coppice.ts', 'networkProfiles'],
  getNetwork: ['sandbox/sandbox-egress.ts', 'network'],
  setNetwork: ['sandbox/sandbox-egress.ts', 'setNetwork'],
  listCredentials: ['sandbox/sandbox-egress.ts', 'credentials'],
  setCredentials: ['sandbox/sandbox-egress.ts', 'setCredentials'],
  getUsage: ['coppice.ts', 'usage'],
  getStatement: ['coppice.ts', 'statement'],
  listHistory: ['coppice.ts', 'history'],
  createDisk: ['coppice.ts', 'createDisk'],
  listDisks: ['coppice.ts', 'listDisks'],
  getDisk: ['coppice.ts', 'getDisk'],
  changeDisk: ['coppice.ts', 'growDisk'],
  deleteDisk: ['coppice.ts', 'deleteDisk'],
  flushDisk: ['coppice.ts', 'flushDisk'],
  forkDisk: ['coppice.ts', 'forkDisk'],
  exportDisk: ['coppice.ts', 'exportDisk'],
  importDisk: ['coppice.ts', 'importDisk'],
  createDiskSnapshot: ['coppice.ts', 'snapshotDisk'],
  listDiskSnapshots: ['coppice.ts', 'listDiskSnapshots'],
  deleteDiskSnapshot: ['coppice.ts', 'deleteDiskSnapshot'],
  createCommand: ['commands/sandbox-commands.ts', 'start'],
  listCommands: ['commands/sandbox-commands.ts', 'list'],
  getCommand: ['commands/sandbox-commands.ts', 'get'],
  getCommandOutput: ['commands/command.ts', 'output'],
  writeCommandStdin: ['commands/command.ts', 'write'],
  signalCommand: ['commands/command.ts', 'signal'],
  waitCommand: ['commands/command.ts', 'wait'],
  exec: ['sandbox/sandbox-guest.ts', 'exec'],
  execStream: ['sandbox/sandbox-guest.ts', 'stream'],
  execWebSocket: ['sandbox/sandbox-guest.ts', 'spawn'],
  shellWebSocket: ['sandbox/sandbox-guest.ts', 'shell'],
  terminalWebSocket: ['sandbox/sandbox-guest.ts', 'terminal'],
  getSsh: ['sandbox/sandbox-guest.ts', 'sshHostKey'],
  sshWebSocket: ['sandbox/sandbox-guest.ts', 'ssh'],
  createTicket: ['sandbox/sandbox-guest.ts', 'createTicket'],
  createPreview: ['sandbox/sandbox-guest.ts', 'preview'],
  listPreviews: ['sandbox/sandbox-guest.ts', 'previews'],
  revokePreview: ['sandbox/sandbox-guest.ts', 'revokePreview'],
  proxyGet: ['sandbox/sandbox-guest.ts', 'url'],
  uploadFile: ['sandbox/sandbox-guest.ts', 'upload'],
  downloadFile: ['sandbox/sandbox-guest.ts', 'download'],
  listFiles: ['sandbox/sandbox-guest.ts', 'listFiles'],
  removeFile: ['sandbox/sandbox-files.ts', 'remove'],
  getFileDetails: ['sandbox/sandbox-files.ts', 'stat'],
  makeDirectory: ['sandbox/sandbox-files.ts', 'mkdir'],
  moveFile: ['sandbox/sandbox-files.ts', 'move'],
  changeFileMode: ['sandbox/sandbox-files.ts', 'chmod'],
  changeFileOwner: ['sandbox/sandbox-files.ts', 'chown'],
  downloadArchive: ['sandbox/sandbox-files.ts', 'downloadArchive'],
  uploadArchive: ['sandbox/sandbox-files.ts', 'uploadArchive'],
  createFileLink: ['sandbox/sandbox-files.ts', 'createLink'],
  watchFiles: ['sandbox/sandbox-files.ts', 'watch'],
  listEvents: ['coppice.ts', 'events'],
  createWebhook: ['webhooks/webhooks.ts', 'create'],
  listWebhooks: ['webhooks/webhooks.ts', 'list'],
  getWebhook: ['webhooks/webhooks.ts', 'get'],
  patchWebhook: ['webhooks/webhooks.ts', 'update'],
  deleteWebhook: ['webhooks/webhooks.ts', 'delete'],
  rotateWebhook: ['webhooks/webhooks.ts', 'rotateSecret'],
  testWebhook: ['webhooks/webhooks.ts', 'test'],
  listDeliveries: ['webhooks/webhooks.ts', 'deliveries'],
  retryDelivery: ['webhooks/webhooks.ts', 'retry'],
  getOrganizationAudit: ['organization.ts', 'audit'],
  putSecret: ['secrets.ts', 'set'],
  getSecret: ['secrets.ts', 'get'],
  deleteSecret: ['secrets.ts', 'delete'],
  listSecrets: ['secrets.ts', 'list'],
  listImages: ['images.ts', 'list'],
  buildImage: ['images.ts', 'build'],
  deleteImage: ['images.ts', 'delete'],
  listImageBuilds: ['image-builds.ts', 'list'],
  getImageBuild: ['image-builds.ts', 'get'],
  cancelImageBuild: ['image-builds.ts', 'cancel'],
  getImageBuildLog: ['image-builds.ts', 'follow'],
  uploadBuildContext: ['image-builds.ts', 'uploadContext'],
  deleteBuildContext: ['image-builds.ts', 'deleteContext'],
  putRegistry: ['registries.ts', 'set'],
  listRegistries: ['registries.ts', 'list'],
  deleteRegistry: ['registries.ts', 'delete'],
  putBudget: ['budgets.ts', 'set'],
  listBudgets: ['budgets.ts', 'list'],
  deleteBudget: ['budgets.ts', 'delete'],
};

interface TypeScriptExample {
  code: string;
  /** Whether it uses `@coppice/sdk`. */
  isClient: boolean;
}

export type FindExample = (operation: Operation) => TypeScriptExample;

/** Reads the examples of the client. Throws if a method, or its example, no longer exists. */
export function readExamples(repository: string, document: OpenApiDocument): FindExample {
  const texts = new Map<string, string>();
  const read = (file: string): string => {
    const text = texts.get(file) ?? readFileSync(join(repository, SDK, file), 'utf8');
    texts.set(file, text);
    return text;
  };
  return (operation) => {
    const named = METHODS[operation.operationId];
    if (named === undefined) return { code: buildFetch(operation, document), isClient: false };
    const [file, method] = named;
    return { code: findExample(read(file), { file, method }), isClient: true };
  };
}

function findExample(text: string, { file, method }: { file: string; method: string }): string {
  const declared = new RegExp(String.raw`\n  (?:async )?\*?${method}(?:<[^(]*>)?\(`, 'u').exec(text)?.index;
  const comment = declared === undefined ? '' : text.slice(text.lastIndexOf('/**', declared), declared);
  const [, example] = comment.split('@example\n', 2);
  const isOwn = comment.indexOf('*/') === comment.lastIndexOf('*/') && comment.trimEnd().endsWith('*/');
  if (example === undefined || !isOwn) throw new Error(`${SDK}/${file}: ${method}() has no @example`);
  return example
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/u, ''))
    .filter((line) => line !== '/')
    .join('\n')
    .trim();
}

/** Returns a call of `fetch`. */
function buildFetch(operation: Operation, document: OpenApiDocument): string {
  const path = operation.path.replaceAll(/\{(\w+)\}/gu, (_, name: string) => `\${${name}}`);
  const url = `\`\${baseUrl}${path}${exampleQuery(operation, document)}\``;
  const body = exampleBody(operation, document);
  const headers = [
    ...(isOpen(operation) || operation.path.startsWith('/account/')
      ? []
      : ['authorization: `Bearer ${apiKey}`']),
    ...(body === undefined ? [] : ["'content-type': 'application/json'"]),
  ];
  const options = [
    ...(operation.method === 'GET' ? [] : [`method: '${operation.method}'`]),
    ...(headers.length === 0 ? [] : [`headers: { ${headers.join(', ')} }`]),
    ...(body === undefined ? [] : [`body: JSON.stringify(${toLiteral(body)})`]),
    ...(operation.path.startsWith('/account/') ? ["credentials: 'same-origin'"] : []),
  ];
  const init = options.length === 0 ? '' : `, {\n  ${options.join(',\n  ')},\n}`;
  return `const response = await fetch(${url}${init});`;
}

/** Returns a value of JSON as TypeScript writes it. */
function toLiteral(value: unknown): string {
  if (typeof value === 'string') return `'${value.replaceAll('\\', '\\\\').replaceAll("'", String.raw`\'`)}'`;
  if (Array.isArray(value)) return `[${value.map(toLiteral).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, each]) => `${name}: ${toLiteral(each)}`);
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`;
}
