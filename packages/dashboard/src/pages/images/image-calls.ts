/** Calls about images, builds and registries as code. */
import type { BuildRequest, Shape } from '../../../../sdk/src/index.ts';
import { toLiteral, toPython, toPythonArguments, type writeSnippet } from '../../ui/snippets.ts';

type Call = Parameters<typeof writeSnippet>[0];

const BUILDS = '/v1/images/builds';

export const LIST_IMAGES: Call = {
  method: 'GET',
  path: '/v1/images',
  typescript: 'for (const { image, sizeBytes } of await client.images.list()) console.log(image, sizeBytes);',
  python: 'for image in client.images.list():\n    print(image.image, image.size_bytes)',
};

export const LIST_BUILDS: Call = {
  method: 'GET',
  path: BUILDS,
  typescript: 'for (const { name, status } of await client.builds.list()) console.log(name, status);',
  python: 'for build in client.builds.list():\n    print(build.name, build.status)',
};

export const LIST_REGISTRIES: Call = {
  method: 'GET',
  path: '/v1/registries',
  typescript:
    'for (const { registry, username } of await client.registries.list()) console.log(registry, username);',
  python: 'for registry in client.registries.list():\n    print(registry.registry, registry.username)',
};

export function prepareImageCall(image: string, shape: Shape | undefined): Call {
  const wire = shape && { vcpus: shape.vcpus, mem_mib: shape.memMiB, disk_mib: shape.diskMiB };
  return {
    method: 'POST',
    path: '/v1/images/build',
    body: { image, ...(wire && { shapes: [wire] }) },
    typescript: `await client.images.build(${toLiteral(image)}${shape === undefined ? '' : `, ${toLiteral({ shapes: [shape] })}`});`,
    python: `client.images.build(${toPython(image)}${wire === undefined ? '' : `, shapes=${toPython([wire])}`})`,
  };
}

export function deleteImageCall(image: string): Call {
  return {
    method: 'DELETE',
    path: `/v1/images?${new URLSearchParams({ image }).toString()}`,
    typescript: `await client.images.delete(${toLiteral(image)});`,
    python: `client.images.delete(${toPython(image)})`,
  };
}

export function startBuildCall(request: BuildRequest): Call {
  const { name, noCache, memMiB, vcpus, diskMiB, ...content } = request;
  const options = { no_cache: noCache, vcpus, mem_mib: memMiB, disk_mib: diskMiB };
  const wire = { ...content, ...options };
  const python = toPythonArguments(
    'steps' in content ? { from_: content.from, steps: content.steps, ...options } : { ...wire },
  );
  return {
    method: 'POST',
    path: '/v1/images/build',
    body: { name, ...wire, detached: true },
    typescript: `const { id } = await client.builds.start(${toLiteral(request)});`,
    python: `build = client.builds.start(${toPython(name)}, ${python})`,
  };
}

export function getBuildCall(id: string): Call {
  return {
    method: 'GET',
    path: `${buildPath(id)}/log`,
    typescript: [
      `for await (const event of client.builds.follow(${toLiteral(id)}))`,
      `  if (event.type === 'stdout' || event.type === 'stderr') process.stdout.write(event.data);`,
    ].join('\n'),
    python: `for event in client.builds.follow(${toPython(id)}):\n    print(event.data or event.text or "", end="")`,
  };
}

export function cancelBuildCall(id: string): Call {
  return {
    method: 'DELETE',
    path: buildPath(id),
    typescript: `await client.builds.cancel(${toLiteral(id)});`,
    python: `client.builds.cancel(${toPython(id)})`,
  };
}

/** The password is a variable: a copied text must not contain a secret. */
export function setRegistryCall(registry: string, username: string): Call {
  return {
    method: 'PUT',
    path: registryPath(registry),
    body: { username, password: 'REGISTRY_TOKEN' },
    typescript: `await client.registries.set(${toLiteral(registry)}, { username: ${toLiteral(username)}, password: process.env.REGISTRY_TOKEN ?? '' });`,
    python: `client.registries.set(${toPython(registry)}, username=${toPython(username)}, password=os.environ["REGISTRY_TOKEN"])`,
  };
}

export function deleteRegistryCall(registry: string): Call {
  return {
    method: 'DELETE',
    path: registryPath(registry),
    typescript: `await client.registries.delete(${toLiteral(registry)});`,
    python: `client.registries.delete(${toPython(registry)})`,
  };
}

function buildPath(id: string): string {
  return `${BUILDS}/${encodeURIComponent(id)}`;
}

function registryPath(registry: string): string {
  return `/v1/registries/${encodeURIComponent(registry)}`;
}
