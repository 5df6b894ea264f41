/** The builds of images from steps, and the images that they made. */
import {
  BuildContext,
  BuildLog,
  BuildLogQuery,
  DeleteImageQuery,
  ImageBuild,
  ImageBuildEvent,
} from '@coppice/contract';
import { z } from 'zod';
import { answers, CONTENT, contents, eventOf } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { addRawBodies, cutOff, watchForStall } from '../../requests/raw-body.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';
import { sendBuildEvents } from './build-from-steps.ts';

const BuildParams = z.object({ build: z.string().max(64) });
const ContextParams = z.object({ context: z.string().max(64) });

const LOG = contents('A page of the log, or the events to the end of the build.', {
  'application/json': BuildLog,
  'text/event-stream': eventOf(ImageBuildEvent),
});

type Parts = Pick<
  HttpParts,
  'imageBuilds' | 'builtImages' | 'contexts' | 'runners' | 'openRequests' | 'limits'
>;

export function addBuildRoutes(app: App, parts: Parts): void {
  addListBuilds(app, parts);
  addGetBuild(app, parts);
  addCancelBuild(app, parts);
  addBuildLog(app, parts);
  addDeleteImage(app, parts);
  addUploadContext(app, parts);
  addDeleteContext(app, parts);
}

function addListBuilds(app: App, { imageBuilds }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/images/builds',
    config: { access: 'read' },
    schema: {
      operationId: 'listImageBuilds',
      summary: 'List the newest 100 builds of images from steps',
      response: answers(200, z.array(ImageBuild), [401, 503]),
    },
    handler: ({ reach }) => imageBuilds.list(reach),
  });
}

function addGetBuild(app: App, { imageBuilds }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/images/builds/:build',
    config: { access: 'read' },
    schema: {
      operationId: 'getImageBuild',
      summary: 'Get a build of an image from steps',
      params: BuildParams,
      response: answers(200, ImageBuild, [401, 404, 503]),
    },
    handler: ({ reach, params }) => imageBuilds.get(reach, params.build),
  });
}

function addCancelBuild(app: App, { imageBuilds }: Parts): void {
  app.route({
    method: 'DELETE',
    url: '/v1/images/builds/:build',
    config: { access: 'full' },
    schema: {
      operationId: 'cancelImageBuild',
      summary: 'Cancel a build; answers when its sandbox is destroyed',
      description:
        'A build that has ended stays as it is. The newest 100 builds are kept with their logs, for 30 days.',
      params: BuildParams,
      response: answers(200, ImageBuild, [401, 404, 503]),
    },
    handler: ({ reach, params }) => imageBuilds.cancel(reach, params.build),
  });
}

function addBuildLog(app: App, parts: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/images/builds/:build/log',
    config: { access: 'read' },
    schema: {
      operationId: 'getImageBuildLog',
      summary: 'Read the log of a build, as a page or as a stream',
      description:
        'With `Accept: text/event-stream`: server-sent events, one ImageBuildEvent per `data:` line, until the build has ' +
        'ended. The id of an event is its `seq`; a client that continues sends it as `after`.',
      params: BuildParams,
      querystring: BuildLogQuery,
      response: { ...answers(200, BuildLog, [400, 401, 404, 429, 503]), 200: LOG },
    },
    handler: async (request, reply) => {
      const { params, query, reach } = request;
      if (request.headers.accept?.includes('text/event-stream') === true) {
        await sendBuildEvents(parts, request, reply, { id: params.build, after: query.after });
        return reply;
      }
      const events = await parts.imageBuilds.readLog(reach, params.build, query.after);
      return { events, next: events.at(-1)?.seq ?? query.after };
    },
  });
}

function addDeleteImage(app: App, { builtImages }: Parts): void {
  app.route({
    method: 'DELETE',
    url: '/v1/images',
    config: { access: 'full' },
    schema: {
      operationId: 'deleteImage',
      summary: 'Delete an image that was built from steps',
      description:
        'Sandboxes and snapshots of the image keep what they need of it, and its bytes count until they are gone. A key that is ' +
        'limited to a team deletes only what its team has built.',
      querystring: DeleteImageQuery,
      response: answers(200, z.object({ deleted: z.boolean() }), [400, 401, 403, 404, 503]),
    },
    handler: async (request) => {
      const { reach, query } = request;
      await builtImages.delete({ reach, by: actorOf(request) }, query.image);
      return { deleted: true };
    },
  });
}

function addUploadContext(app: App, { contexts, runners, openRequests, limits }: Parts): void {
  addRawBodies(app, (scope) => {
    scope.route({
      method: 'POST',
      url: '/v1/images/contexts',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'uploadBuildContext',
        summary: 'Upload the files that a build copies, as a tar',
        description:
          'The body is a tar of files, directories and symbolic links, of any content type, at most 512 MiB. One build can use it; ' +
          'it is removed with the end of that build, or after an hour. If the start of a build is refused, the context waits for ' +
          'another hour. At the limit of 8, the one that has waited longest is removed, if it has waited for a minute.',
        consumes: ['application/octet-stream'],
        body: CONTENT,
        response: answers(201, BuildContext, [400, 401, 413, 429, 503]),
      },
      handler: async (request, reply) => {
        const { organizationId } = request;
        // Only a control with a runner builds: without one here, the files go to one that has some.
        runners.assertHere();
        using stall = watchForStall(request, limits.transferStallMs, 'invalid_request');
        const made = await openRequests.limit(organizationId, () =>
          contexts.receive(organizationId, request.raw, stall.signal),
        );
        return reply.code(201).send(made);
      },
      onError: async (request) => cutOff(request),
    });
  });
}

function addDeleteContext(app: App, { contexts }: Parts): void {
  app.route({
    method: 'DELETE',
    url: '/v1/images/contexts/:context',
    config: { access: 'full' },
    schema: {
      operationId: 'deleteBuildContext',
      summary: 'Delete a context that no build uses',
      params: ContextParams,
      response: answers(200, z.object({ deleted: z.boolean() }), [401, 404, 503]),
    },
    handler: async ({ organizationId, params }) => {
      await contexts.remove(organizationId, params.context);
      return { deleted: true };
    },
  });
}
