import {
  AppError,
  BuildImageEvent,
  BuildImageRequest,
  ImageRecord,
  parseImageReference,
} from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { PrepareProgress, PreparedImage } from '../../../lib/runner-protocol.ts';
import { answers, contents, eventOf } from '../answers.ts';
import type { App } from '../app.ts';
import { buildErrorBody, logError, toAppError } from '../error-mapper.ts';
import { EventStream } from '../event-stream.ts';
import type { HttpParts } from '../parts.ts';

const OK = contents('The image; or what happens until it is prepared.', {
  'application/json': ImageRecord,
  'text/event-stream': eventOf(BuildImageEvent),
});

type Parts = Pick<HttpParts, 'runner' | 'openRequests' | 'registries' | 'imageUses'>;

/** The preparation goes on when the client leaves: the next create of this image has use of it. */
export function addBuildImage(app: App, parts: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/images/build',
    config: { access: 'full' },
    schema: {
      operationId: 'buildImage',
      summary: 'Pull and prepare an image, as a first create would',
      description:
        'With `Accept: text/event-stream` the answer streams BuildImageEvent, one per `data:` line: steps as they ' +
        'begin, how far they are, and `done` or `error` last.',
      body: BuildImageRequest,
      response: { ...answers(200, ImageRecord, [404, 409, 502]), 200: OK },
    },
    handler: (request, reply) =>
      parts.openRequests.limit(request.organizationId, async () => {
        const progress = await startBuild(parts, request);
        if (request.headers.accept?.includes('text/event-stream') !== true) return waitForImage(progress);
        await forward(progress, new EventStream(reply), request);
        return reply;
      }),
  });
}

interface Build {
  organizationId: string;
  body: BuildImageRequest;
}

/** Throws before anything is sent what is wrong with the request itself. */
async function startBuild(
  { runner, registries, imageUses }: Parts,
  { organizationId, body }: Build,
): Promise<AsyncIterable<BuildImageEvent>> {
  const login = await registries.findLogin(organizationId, parseImageReference(body.image));
  return noteUse(requireDone(runner.prepareImage(body.image, login)), (image) =>
    imageUses.note(organizationId, image),
  );
}

async function* noteUse(
  events: AsyncIterable<BuildImageEvent>,
  note: (image: string) => Promise<void>,
): AsyncGenerator<BuildImageEvent> {
  for await (const event of events) {
    if (event.type === 'done') await note(event.image.image);
    yield event;
  }
}

async function waitForImage(progress: AsyncIterable<BuildImageEvent>): Promise<PreparedImage> {
  for await (const event of progress) if (event.type === 'done') return event.image;
  throw STOPPED;
}

const STOPPED = new AppError('unavailable', 'the runner stopped in the middle of the preparation; try again');

/** Steps and progress, then `done`; throws what went wrong instead. */
async function* requireDone(progress: AsyncIterable<PrepareProgress>): AsyncGenerator<BuildImageEvent> {
  for await (const event of progress) {
    if (event.type === 'error') throw new AppError(event.error.code, event.error.message);
    yield event;
    if (event.type === 'done') return;
  }
  throw STOPPED;
}

/** Follows the preparation to its end, whether or not anybody still reads. */
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
    const mapped = toAppError(error);
    logError(mapped, request);
    await stream.send(BuildImageEvent.parse({ type: 'error', ...buildErrorBody(mapped, request.id) }));
  } finally {
    stream.end();
  }
}
