import {
  AppError,
  BuildImageEvent,
  BuildImageRequest,
  ImageBuild,
  ImageBuildEvent,
  ImageRecord,
  parseImageReference,
} from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { PrepareProgress, PreparedImage } from '../../../../lib/protocol/runner-protocol.ts';
import { answers, contents, eventOf } from '../../answers/answers.ts';
import { IdempotencyHeaders } from '../../access/idempotent.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import { buildErrorBody, logError, toAppError } from '../../answers/error-mapper.ts';
import { EventStream } from '../../answers/event-stream.ts';
import type { HttpParts } from '../../parts.ts';
import { buildFromSteps } from './build-from-steps.ts';

const OK = contents('With image: the image, or the events until it is prepared.', {
  'application/json': ImageRecord,
  'text/event-stream': eventOf(BuildImageEvent),
});

const STARTED = contents('With from: the build, or its events until its end.', {
  'application/json': ImageBuild,
  'text/event-stream': eventOf(ImageBuildEvent),
});

type Parts = Pick<
  HttpParts,
  | 'fleetImages'
  | 'runners'
  | 'openRequests'
  | 'registries'
  | 'imageUses'
  | 'builtImages'
  | 'contexts'
  | 'imageBuilds'
  | 'idempotency'
  | 'rules'
  | 'secretDigest'
  | 'secretValues'
>;

/**
 * The image is prepared to the end even if the client leaves, because the next create can use it. Its templates are
 * not: a client that requests them and leaves would keep others waiting.
 */
export function addBuildImage(app: App, parts: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/images/build',
    config: { access: 'full' },
    schema: {
      operationId: 'buildImage',
      summary: 'Prepare an image and its shapes, or build an image from steps',
      description:
        'With `image`: pulls and prepares the image, and makes the templates from which its sandboxes start: for the default shape and for ' +
        'the given shapes. Later creates with one of these shapes take the fast path. ' +
        'With `Accept: text/event-stream` the answer streams BuildImageEvent, one per `data:` line: each step as it ' +
        'begins, its progress, and `done` or `error` last. ' +
        'With `from`: builds an image from steps in a sandbox, and names it. Sandboxes of your organization can be created from it. ' +
        'The answer is an ImageBuild when the build has ended, or at once with `detached`; its status says whether it failed. With ' +
        '`Accept: text/event-stream` the answer streams ImageBuildEvent, the last of type `end`. The build continues without its ' +
        'client: read it with GET /v1/images/builds/{id}.',
      headers: IdempotencyHeaders,
      body: BuildImageRequest,
      response: {
        ...answers(200, ImageRecord, [400, 401, 402, 403, 404, 409, 413, 422, 429, 502, 503]),
        200: OK,
        201: STARTED,
      },
    },
    handler: (request, reply) => {
      const { image, shapes } = request.body;
      if (image === undefined) return buildFromSteps(parts, request, reply);
      return parts.openRequests.limit(request.organizationId, async () => {
        const wanted = { organizationId: request.organizationId, image, shapes };
        const progress = await startBuild(parts, wanted, whenLeft(reply));
        if (request.headers.accept?.includes('text/event-stream') !== true) return waitForImage(progress);
        await forward(progress, new EventStream(reply), request);
        return reply;
      });
    },
  });
}

interface Build {
  organizationId: string;
  image: string;
  shapes: BuildImageRequest['shapes'];
}

/** Starts the build. Throws before anything is sent when the request itself is wrong. */
async function startBuild(
  { fleetImages, registries, imageUses, builtImages }: Parts,
  { organizationId, image: asked, shapes }: Build,
  left: AbortSignal,
): Promise<AsyncIterable<BuildImageEvent>> {
  const image = await builtImages.pin(organizationId, asked);
  const login = await registries.findLogin(organizationId, parseImageReference(image));
  const ending = new AbortController();
  const progress = fleetImages.prepare({ image, shapes, organization: organizationId, login }, ending.signal);
  return follow(progress, async ({ image }) => {
    await imageUses.note(organizationId, image);
    const end = (): void => ending.abort();
    if (left.aborted) end();
    left.addEventListener('abort', end, { once: true });
  });
}

async function waitForImage(progress: AsyncIterable<BuildImageEvent>): Promise<PreparedImage> {
  for await (const event of progress) if (event.type === 'done') return event.image;
  throw STOPPED;
}

const STOPPED = new AppError('unavailable', 'the runner stopped in the middle of the preparation; try again');

/** Yields steps and progress, then `done`. Throws the error of a build that fails. */
async function* follow(
  progress: AsyncIterable<PrepareProgress>,
  onPrepared: (image: PreparedImage) => Promise<void>,
): AsyncGenerator<BuildImageEvent> {
  for await (const event of progress) {
    if (event.type === 'error') throw new AppError(event.error.code, event.error.message);
    if (event.type === 'prepared') await onPrepared(event.image);
    else yield event;
    if (event.type === 'done') return;
  }
  throw STOPPED;
}

/** Sends the events of the build, to its end. */
async function forward(
  progress: AsyncIterable<BuildImageEvent>,
  stream: EventStream,
  request: FastifyRequest,
): Promise<void> {
  try {
    for await (const event of progress) {
      if (event.type === 'progress') stream.sendIfRead(BuildImageEvent.parse(event));
      else await stream.send(BuildImageEvent.parse(event));
    }
  } catch (error) {
    if (stream.left.aborted) return;
    const mapped = toAppError(error);
    logError(mapped, request);
    await stream.send(BuildImageEvent.parse({ type: 'error', ...buildErrorBody(mapped, request) }));
  } finally {
    stream.end();
  }
}
