/**
 * The routes of docs/reference/runner-protocol.md. Handlers have no deadline of their own: control has one, and repeats a
 * request if this runner was killed.
 */
import type http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { CaptureOwner } from '../../lib/protocol/capture-protocol.ts';
import { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { VmMetricsQuery, type RunnerMetrics } from '../../lib/protocol/metrics-protocol.ts';
import {
  CaptureId,
  CaptureRequest,
  CommitVm,
  CreateVm,
  EventPlace,
  ForkVm,
  ImageDigest,
  KeepImage,
  ListImages,
  OwnedImagesQuery,
  PrepareImage,
  RestoreVm,
  RollbackVm,
  VmShape,
  type Heartbeat,
  type OwnedImagesPage,
  type Roster,
  type RunnerStatus,
} from '../../lib/protocol/runner-protocol.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import type { CaptureObjects } from '../capture-objects/capture-objects.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import type { Fleet } from '../driver/fleet.ts';
import type { ImageBuilds } from '../driver/image-builds.ts';
import type { TemplatePlan } from '../driver/template-plan.ts';
import type { VmCopies } from '../driver/vm-copies.ts';
import type { VmDriver } from '../driver/vm-driver.ts';
import type { VmImages } from '../driver/vm-images.ts';
import type { VmRollbacks } from '../driver/vm-rollbacks.ts';
import type { SharedImages } from '../image-objects/shared-images.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import type { VmMeters } from '../metrics/vm-meters.ts';
import type { DiskOperations } from '../workspace/disk-operations.ts';
import { tunnelToAgent } from './agent-tunnel.ts';
import { streamEvents } from './event-stream.ts';
import { holdPlace, readJson, respondEmpty, respondJson } from './exchange.ts';
import { CAPTURE_ROUTES } from './capture-routes.ts';
import { DISK_ROUTES, diskKeyOf } from './disk-routes.ts';
import { streamPreparation, toWire, untilClosed } from './prepare-stream.ts';

const VM_ID = /^run[0-9a-f]{20}$/u;

export interface RouteParts {
  fleet: Fleet;
  copies: VmCopies;
  objects: CaptureObjects;
  rollbacks: VmRollbacks;
  spool: EventSpool;
  images: ImageStore;
  sharedImages: SharedImages;
  builds: ImageBuilds;
  plan: TemplatePlan;
  vmImages: VmImages;
  disks: DiskOperations;
  status: () => RunnerStatus;
  roster: () => Roster;
  heartbeat: () => Heartbeat;
  metrics: () => RunnerMetrics;
  meters: Pick<VmMeters, 'read'>;
}

export interface Exchange {
  stream: http2.ServerHttp2Stream;
  headers: http2.IncomingHttpHeaders;
  method: string;
  url: URL;
  /** Of a VM or a capture, from the path; empty where the path has none. */
  id: string;
  /** The last part of a path below `agent`. */
  agentRoute: string;
  /** All named parts of the path. */
  parameters: Record<string, string>;
}

type Handler = (parts: RouteParts, exchange: Exchange) => Promise<void> | void;

type Route = readonly [methods: readonly string[], path: string, handle: Handler];

/** Method and path; names after a colon stand for one part each. The first match counts. */
const ROUTES: readonly Route[] = [
  [['GET'], '/status', ({ status }, { stream }) => respondJson(stream, 200, status())],
  [['GET'], '/metrics', ({ metrics }, { stream }) => respondJson(stream, 200, metrics())],
  [['GET'], '/roster', ({ roster }, { stream }) => respondJson(stream, 200, roster())],
  [['GET'], '/vms', ({ fleet }, { stream }) => respondJson(stream, 200, fleet.vms.list())],
  [['GET'], '/vms/:vm', ({ fleet }, { stream, id }) => respondJson(stream, 200, fleet.vms.get(id).info)],
  [['GET'], '/vms/:vm/metrics', readMetrics],
  [['PUT'], '/vms/:vm', startVm],
  [
    ['DELETE'],
    '/vms/:vm',
    async ({ fleet }, { stream, id }) => respondJson(stream, 200, await fleet.destroy(id)),
  ],
  [['POST'], '/vms/:vm/admission', admitVm],
  [
    ['GET'],
    '/vms/:vm/egress',
    async ({ fleet }, { stream, id }) => respondJson(stream, 200, await fleet.readEgress(id)),
  ],
  [['PUT'], '/vms/:vm/egress', setEgress],
  [['POST'], '/vms/:vm/snapshot', takeSnapshot],
  [['POST'], '/vms/:vm/hibernate', hibernate],
  [['POST'], '/vms/:vm/rollback', rollBack],
  [['POST'], '/vms/:vm/fork', fork],
  [
    ['POST'],
    '/vms/:vm/agent/:route',
    (parts, exchange) =>
      joinAgent(parts, exchange, ['exec', 'shell', 'terminal', 'ssh', 'tunnel', 'commands']),
  ],
  [['PUT'], '/vms/:vm/agent/:route', (parts, exchange) => joinAgent(parts, exchange, ['files'])],
  [
    ['GET'],
    '/vms/:vm/agent/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['files', 'list', 'metrics', 'commands', 'ssh']),
  ],
  [
    ['GET'],
    '/vms/:vm/agent/files/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['stat', 'archive', 'watch'], '/files'),
  ],
  [
    ['PUT'],
    '/vms/:vm/agent/files/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['archive'], '/files'),
  ],
  [
    ['POST'],
    '/vms/:vm/agent/files/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['mkdir', 'move', 'remove', 'chmod', 'chown'], '/files'),
  ],
  [
    ['POST'],
    '/vms/:vm/agent/commands/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['stdin', 'signal'], '/commands'),
  ],
  [
    ['GET'],
    '/vms/:vm/agent/commands/:route',
    (parts, exchange) => joinAgent(parts, exchange, ['watch', 'output'], '/commands'),
  ],
  [['GET'], '/vms/:vm/image', ({ vmImages }, { stream, id }) => respondJson(stream, 200, vmImages.read(id))],
  [['POST'], '/vms/:vm/image', commitVm],
  [['GET'], '/captures', ({ copies }, { stream }) => respondJson(stream, 200, copies.listCaptures())],
  ...CAPTURE_ROUTES.map(([method, path, handle]): Route => [
    [method],
    path,
    ({ objects }, { stream, url, id }) => handle(objects, { stream, url, id: CaptureId.parse(id) }),
  ]),
  [['POST'], '/collect-captures', collectCaptures],
  [['GET'], '/events', (parts, { stream }) => streamEvents(stream, parts)],
  [['POST'], '/events/ack', acknowledgeEvents],
  [['GET'], '/images', listImages],
  [['GET'], '/images/owned', listOwnedImages],
  [['POST'], '/images/prepare', prepareImage],
  [['GET'], '/images/:digest', readImage],
  [['POST'], '/images/:digest/keep', keepImage],
  [['PUT'], '/images/:digest/objects', storeImage],
  [['DELETE'], '/images/:digest/objects', removeStoredImage],
  [['DELETE'], '/images/:digest', releaseImage],
  ...DISK_ROUTES.map(([method, path, handle]): Route => [
    [method],
    path,
    ({ disks }, { stream, url, parameters }) =>
      handle(disks, { stream, url, key: diskKeyOf(parameters), version: parameters['version'] ?? '' }),
  ]),
];

/** Throws `not_found` for an unknown route, `invalid_request` for a malformed VM id. */
export function findRoute(
  method: string,
  path: string,
): { handle: Handler; pattern: string; parameters: Pick<Exchange, 'id' | 'agentRoute' | 'parameters'> } {
  const parts = path.split('/');
  for (const [methods, pattern, handle] of ROUTES) {
    const parameters = methods.includes(method) ? matchPath(pattern.split('/'), parts) : undefined;
    if (parameters === undefined) continue;
    const { vm, capture, route = '' } = parameters;
    if (vm !== undefined && !VM_ID.test(vm)) throw new AppError('invalid_request', 'the VM id is malformed');
    const named = { id: vm ?? capture ?? '', agentRoute: route, parameters };
    return { handle, pattern, parameters: named };
  }
  throw new AppError('not_found', `no route ${method} ${path}`);
}

function matchPath(pattern: readonly string[], parts: readonly string[]): Record<string, string> | undefined {
  if (pattern.length !== parts.length) return undefined;
  const parameters: Record<string, string> = {};
  for (const [index, expected] of pattern.entries()) {
    const part = parts[index] ?? '';
    if (expected.startsWith(':')) parameters[expected.slice(1)] = part;
    else if (expected !== part) return undefined;
  }
  return parameters;
}

async function readMetrics({ meters }: RouteParts, { stream, id, url }: Exchange): Promise<void> {
  const query = VmMetricsQuery.parse(Object.fromEntries(url.searchParams));
  respondJson(stream, 200, await meters.read(id, query));
}

async function startVm({ fleet, copies }: RouteParts, { stream, id }: Exchange): Promise<void> {
  const request = z.union([RestoreVm, CreateVm]).parse(await readJson(stream));
  const info = 'capture_id' in request ? await copies.restore(id, request) : await fleet.create(id, request);
  respondJson(stream, 201, info);
}

async function admitVm({ fleet }: RouteParts, { stream, id }: Exchange): Promise<void> {
  return holdPlace(stream, fleet.admit(id, VmShape.parse(await readJson(stream))));
}

async function setEgress({ fleet }: RouteParts, { stream, id }: Exchange): Promise<void> {
  await fleet.setEgress(id, VmEgress.parse(await readJson(stream)));
  respondEmpty(stream);
}

async function readCaptureId(stream: http2.ServerHttp2Stream): Promise<string> {
  return CaptureRequest.parse(await readJson(stream)).capture_id;
}

async function takeSnapshot({ copies }: RouteParts, { stream, id }: Exchange): Promise<void> {
  respondJson(stream, 201, await copies.snapshot(id, await readCaptureId(stream)));
}

async function hibernate({ copies }: RouteParts, { stream, id }: Exchange): Promise<void> {
  respondJson(stream, 200, await copies.hibernate(id, await readCaptureId(stream)));
}

async function rollBack({ rollbacks }: RouteParts, { stream, id }: Exchange): Promise<void> {
  respondJson(stream, 200, await rollbacks.rollBack(id, RollbackVm.parse(await readJson(stream))));
}

async function fork({ copies }: RouteParts, { stream, id }: Exchange): Promise<void> {
  respondJson(stream, 200, await copies.fork(id, ForkVm.parse(await readJson(stream))));
}

async function collectCaptures({ objects }: RouteParts, { stream }: Exchange): Promise<void> {
  const { organization } = CaptureOwner.parse(await readJson(stream));
  respondJson(stream, 200, await objects.collect(organization));
}

async function acknowledgeEvents({ spool }: RouteParts, { stream }: Exchange): Promise<void> {
  spool.acknowledge(EventPlace.parse(await readJson(stream)));
  respondJson(stream, 200, {});
}

async function prepareImage(parts: RouteParts, { stream }: Exchange): Promise<void> {
  return streamPreparation(stream, parts, PrepareImage.parse(await readJson(stream)));
}

async function commitVm({ vmImages }: RouteParts, { stream, id }: Exchange): Promise<void> {
  const request = CommitVm.parse(await readJson(stream));
  respondJson(stream, 201, await vmImages.commit(id, request, untilClosed(stream)));
}

function readImage({ vmImages }: RouteParts, { stream, parameters }: Exchange): void {
  respondJson(stream, 200, vmImages.find(parameters['digest'] ?? ''));
}

async function keepImage({ images }: RouteParts, { stream, parameters }: Exchange): Promise<void> {
  const { organization, kept } = KeepImage.parse(await readJson(stream));
  const isStored = await images.keep(parameters['digest'] ?? '', organization, kept);
  respondJson(stream, 200, { stored: isStored });
}

async function releaseImage({ images }: RouteParts, { stream, parameters }: Exchange): Promise<void> {
  const isReleased = await images.release(parameters['digest'] ?? '');
  respondJson(stream, 200, { released: isReleased });
}

async function storeImage({ sharedImages }: RouteParts, { stream, parameters }: Exchange): Promise<void> {
  const { organization } = CaptureOwner.parse(await readJson(stream));
  respondJson(stream, 200, await sharedImages.store(digestIn(parameters), organization));
}

async function removeStoredImage(
  { sharedImages }: RouteParts,
  { stream, parameters, url }: Exchange,
): Promise<void> {
  const { organization } = CaptureOwner.parse(Object.fromEntries(url.searchParams));
  await sharedImages.remove(digestIn(parameters), organization);
  respondJson(stream, 200, {});
}

function digestIn(parameters: Exchange['parameters']): string {
  return ImageDigest.parse(parameters['digest']);
}

function listImages({ images, plan }: RouteParts, { stream, url }: Exchange): void {
  const { built } = ListImages.parse(Object.fromEntries(url.searchParams));
  const listed = images.list({ withBuilt: built !== undefined });
  respondJson(
    stream,
    200,
    listed.map((image) => toWire(image, plan.listReady(image))),
  );
}

async function listOwnedImages({ images, plan }: RouteParts, { stream, url }: Exchange): Promise<void> {
  const query = OwnedImagesQuery.parse(Object.fromEntries(url.searchParams));
  const page = await images.listOwned(query);
  const answer: z.infer<typeof OwnedImagesPage> = {
    images: page.images.map((image) => ({
      digest: image.digest,
      organization: image.owner.organization,
      build: image.owner.build,
      size_bytes: image.sizeBytes,
      prepared_at: image.preparedAt.toISOString(),
      kept: image.isKept,
      released: image.isReleased,
      linked: image.isLinked,
      shapes: plan.listReady(image),
    })),
    next: page.next,
  };
  respondJson(stream, 200, answer);
}

/** Joins the stream with one to the agent, for one of the `allowed` routes below `prefix`. */
async function joinAgent(
  { fleet }: RouteParts,
  exchange: Exchange,
  allowed: readonly string[],
  prefix = '',
): Promise<void> {
  const { stream, headers, method, url, id, agentRoute } = exchange;
  if (!allowed.includes(agentRoute))
    throw new AppError('not_found', `no agent route ${method} ${agentRoute}`);
  const driver = fleet.vms.get(id);
  if (!driver.isUp) throw new AppError('invalid_state', `the sandbox is ${driver.phase}`);
  if (driver.isPaused) throw paused(driver.heldFor);
  const session = await openSession(driver);
  const passed: http2.OutgoingHttpHeaders = {};
  for (const name of ['range', 'content-length'] as const) {
    if (headers[name] !== undefined) passed[name] = headers[name];
  }
  return tunnelToAgent(stream, session, {
    method,
    path: `${prefix}/${agentRoute}${url.search}`,
    headers: passed,
  });
}

function paused(reason = 'the disk of its host is full; it continues when there is room'): AppError {
  return new AppError('unavailable', `the sandbox is paused because ${reason}; try again later`);
}

async function openSession(driver: VmDriver): Promise<AgentSession> {
  try {
    return await driver.session();
  } catch (error) {
    throw new AppError('guest_unreachable', 'the agent in the sandbox does not answer', { cause: error });
  }
}
