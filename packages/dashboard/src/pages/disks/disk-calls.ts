/** Calls about disks as code. */
import { toLiteral, toPython, type writeSnippet } from '../../ui/snippets.ts';

type Call = Parameters<typeof writeSnippet>[0];

const PATH = '/v1/disks';

export const LIST_DISKS: Call = {
  method: 'GET',
  path: PATH,
  typescript: 'for await (const { name, status } of client.listDisks()) console.log(name, status);',
  python: 'for disk in client.list_disks():\n    print(disk.name, disk.status)',
};

export function createDiskCall(name: string, sizeGb: number): Call {
  return {
    method: 'POST',
    path: PATH,
    body: { name, size_gb: sizeGb },
    typescript: `await client.createDisk(${toLiteral({ name, sizeGb })});`,
    python: `client.create_disk(name=${toPython(name)}, size_gb=${sizeGb})`,
  };
}

export function getDiskCall(name: string): Call {
  return {
    method: 'GET',
    path: pathOf(name),
    typescript: `const disk = await client.getDisk(${toLiteral(name)});`,
    python: `disk = client.get_disk(${toPython(name)})`,
  };
}

export function growDiskCall(name: string, sizeGb: number): Call {
  return {
    method: 'PATCH',
    path: pathOf(name),
    body: { size_gb: sizeGb },
    typescript: `await client.growDisk(${toLiteral(name)}, ${sizeGb});`,
    python: `client.grow_disk(${toPython(name)}, ${sizeGb})`,
  };
}

export function flushDiskCall(name: string): Call {
  return {
    method: 'POST',
    path: `${pathOf(name)}/flush`,
    typescript: `await client.flushDisk(${toLiteral(name)});`,
    python: `client.flush_disk(${toPython(name)})`,
  };
}

export function deleteDiskCall(name: string): Call {
  return {
    method: 'DELETE',
    path: pathOf(name),
    typescript: `await client.deleteDisk(${toLiteral(name)});`,
    python: `client.delete_disk(${toPython(name)})`,
  };
}

export function snapshotDiskCall(disk: string, options: { name: string; sync: boolean }): Call {
  return {
    method: 'POST',
    path: `${pathOf(disk)}/snapshots`,
    body: options,
    typescript: `await client.snapshotDisk(${toLiteral(disk)}, ${toLiteral(options)});`,
    python: `client.snapshot_disk(${toPython(disk)}, name=${toPython(options.name)}, sync=${toPython(options.sync)})`,
  };
}

export function deleteSnapshotCall(disk: string, snapshot: string): Call {
  return {
    method: 'DELETE',
    path: `${pathOf(disk)}/snapshots/${encodeURIComponent(snapshot)}`,
    typescript: `await client.deleteDiskSnapshot(${toLiteral(disk)}, ${toLiteral(snapshot)});`,
    python: `client.delete_disk_snapshot(${toPython(disk)}, ${toPython(snapshot)})`,
  };
}

export function forkDiskCall(disk: string, options: { snapshot: string; name: string }): Call {
  const { snapshot, name } = options;
  return {
    method: 'POST',
    path: `${pathOf(disk)}/fork`,
    body: options,
    typescript: `await client.forkDisk(${toLiteral(disk)}, ${toLiteral(options)});`,
    python: `client.fork_disk(${toPython(disk)}, snapshot=${toPython(snapshot)}, name=${toPython(name)})`,
  };
}

interface ImageOptions {
  format: string;
  snapshot?: string | undefined;
}

export function exportDiskCall(disk: string, { format, snapshot }: ImageOptions): Call {
  const query = new URLSearchParams({ format, ...(snapshot !== undefined && { snapshot }) });
  return {
    method: 'GET',
    path: `${pathOf(disk)}/content?${query.toString()}`,
    output: imageFileName(disk, format),
    typescript: `const image = await client.exportDisk(${toLiteral(disk)}, ${toLiteral({ format, snapshot })});`,
    python: [
      `with client.export_disk(${toPython(disk)}, ${snapshot === undefined ? '' : `snapshot=${toPython(snapshot)}, `}format=${toPython(format)}) as image:`,
      `    with open(${toPython(imageFileName(disk, format))}, "wb") as file:`,
      '        for chunk in image:',
      '            file.write(chunk)',
    ].join('\n'),
  };
}

export function importDiskCall(disk: string, { format }: ImageOptions): Call {
  const file = imageFileName('disk', format);
  return {
    method: 'PUT',
    path: `${pathOf(disk)}/content?format=${format}`,
    file,
    typescript: [
      `import { openAsBlob } from 'node:fs';`,
      `await client.importDisk(${toLiteral(disk)}, await openAsBlob(${toLiteral(file)}), ${toLiteral({ format })});`,
    ].join('\n'),
    python: [
      `with open(${toPython(file)}, "rb") as image:`,
      `    client.import_disk(${toPython(disk)}, image, format=${toPython(format)})`,
    ].join('\n'),
  };
}

/** Returns a name for the file of a disk image. */
export function imageFileName(disk: string, format: string): string {
  return `${disk}.${format === 'raw' ? 'img' : format}`;
}

function pathOf(name: string): string {
  return `${PATH}/${encodeURIComponent(name)}`;
}
