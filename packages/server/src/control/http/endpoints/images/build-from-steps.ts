/** `POST /v1/images/build` with `from`: starts a build, and answers as the client asks. */
import { ImageBuild, ImageBuildEvent, type BuildImageRequest } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { newBuildId } from '../../../image-builds/image-builds.ts';
import { endOf } from '../../access/end-with-key.ts';
import { createOnce } from '../../access/idempotent.ts';
import { EventStream } from '../../answers/event-stream.ts';
import { sendDelayed } from '../../answers/send-delayed.ts';
import { buildErrorFrame } from '../../answers/stream-error.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';
import type { KeptAnswer } from '../../../sandbox/idempotency.ts';
import { readRequestedEgress } from '../../requests/requested-egress.ts';

type Parts = Pick<
  HttpParts,
  | 'contexts'
  | 'imageBuilds'
  | 'idempotency'
  | 'openRequests'
  | 'rules'
  | 'runners'
  | 'secretDigest'
  | 'secretValues'
>;

export async function buildFromSteps(
  parts: Parts,
  request: FastifyRequest & { body: BuildImageRequest },
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { imageBuilds, openRequests } = parts;
  const { organizationId, reach, body } = request;
  const start = (): Promise<KeptAnswer<ImageBuild>> => startOnce(parts, request, reply);
  const wantsEvents = request.headers.accept?.includes('text/event-stream') === true;
  if (body.detached && !wantsEvents) {
    const { body: build } = await start();
    return reply.code(201).header('location', `/v1/images/builds/${build.id}`).send(build);
  }
  // Before the start: a request that is refused must not have begun a build.
  await openRequests.stream(organizationId, async () => {
    const left = whenLeft(reply);
    const { body: build } = await start();
    if (wantsEvents) return sendEvents(parts, request, reply, { id: build.id, after: 0 });
    const signal = AbortSignal.any([left, endOf(request, openRequests)]);
    return sendDelayed(request, reply, async () =>
      ImageBuild.parse(await imageBuilds.wait(reach, build.id, signal)),
    );
  });
  return reply;
}

function startOnce(
  parts: Parts,
  request: FastifyRequest & { body: BuildImageRequest },
  reply: FastifyReply,
): Promise<KeptAnswer<ImageBuild>> {
  const { organizationId, teamId, reach, body } = request;
  const { contexts, imageBuilds } = parts;
  return createOnce(parts, request, reply, {
    body: parts.secretDigest.hide(body),
    newSubjectId: newBuildId,
    create: async (id) => {
      // Before runners are asked for: the request may be forwarded only once, and only one control has the files.
      if (body.context !== undefined) await contexts.requireHere(organizationId, body.context);
      const asked = { ...body, image: body.from ?? '', labels: {} };
      const egress = await readRequestedEgress(organizationId, asked, parts);
      const start = {
        owner: { organizationId, teamId },
        reach,
        by: actorOf(request),
        id,
        request: body,
        egress,
      };
      return { status: 201, body: await imageBuilds.start(start) };
    },
    find: (id) => imageBuilds.findSubject(reach, id),
  });
}

/** Streams the log of a build to its end. */
export async function sendBuildEvents(
  parts: Pick<HttpParts, 'imageBuilds' | 'openRequests'>,
  request: FastifyRequest,
  reply: FastifyReply,
  place: { id: string; after: number },
): Promise<void> {
  await parts.imageBuilds.get(request.reach, place.id);
  await parts.openRequests.stream(request.organizationId, () => sendEvents(parts, request, reply, place));
}

async function sendEvents(
  { imageBuilds, openRequests }: Pick<HttpParts, 'imageBuilds' | 'openRequests'>,
  request: FastifyRequest,
  reply: FastifyReply,
  { id, after }: { id: string; after: number },
): Promise<void> {
  const events = new EventStream(reply);
  const signal = AbortSignal.any([events.left, endOf(request, openRequests)]);
  try {
    for await (const event of imageBuilds.follow(request.reach, id, { after, signal }))
      await events.send(ImageBuildEvent.parse(event), event.seq);
  } catch (error) {
    await events.send(buildErrorFrame(error, request, openRequests));
  } finally {
    events.end();
  }
}
