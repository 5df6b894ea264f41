/** Files that were dropped on the page or chosen in a dialog, with their paths below the place that they go to. */

export interface ChosenFile {
  file: File;
  /** Relative, for example `photos/a.png`. */
  path: string;
}

/** More are for an archive. */
const MAX_FILES = 5000;

/** Returns the files of a file dialog; those of a chosen folder have a path. */
export function readChosen(files: Iterable<File>): readonly ChosenFile[] {
  return limit(Array.from(files, (file) => ({ file, path: file.webkitRelativePath || file.name })));
}

/** Reads dropped files, and folders with everything in them. Call it within the event: later, its data is gone. */
export async function readDropped(transfer: DataTransfer): Promise<readonly ChosenFile[]> {
  const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry()).filter(
    (entry) => entry !== null,
  );
  if (entries.length === 0) return readChosen(transfer.files);
  const found: ChosenFile[] = [];
  for (const entry of entries) await collect(entry, '', found);
  return found;
}

async function collect(entry: FileSystemEntry, parent: string, found: ChosenFile[]): Promise<void> {
  const path = parent + entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject),
    );
    found.push({ file, path });
    limit(found);
  } else if (entry.isDirectory) {
    for (const child of await readDirectory(entry as FileSystemDirectoryEntry))
      await collect(child, `${path}/`, found);
  }
}

/** The browser hands out a directory in parts, until one is empty. */
async function readDirectory(directory: FileSystemDirectoryEntry): Promise<readonly FileSystemEntry[]> {
  const reader = directory.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (part.length === 0) return all;
    all.push(...part);
  }
}

function limit(files: readonly ChosenFile[]): readonly ChosenFile[] {
  if (files.length <= MAX_FILES) return files;
  throw new Error(
    `More than ${MAX_FILES} files cannot be uploaded at once here. Upload them as an archive, with "coppice cp" for example.`,
  );
}
