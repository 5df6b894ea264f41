/** Transfers by links to files. The browser does them without holding the file in memory. */
import type { Sandbox } from '../../../../../sdk/src/index.ts';

const LINK_SECONDS = 300;

/** The service may have several names; links are used under that of the page, whose policy allows no other. */
function toOwnOrigin(url: string): string {
  const { pathname, search } = new URL(url);
  return location.origin + pathname + search;
}

/** Lets the browser store a file of the sandbox. */
export async function downloadByLink(sandbox: Sandbox, path: string, name: string): Promise<void> {
  const { url } = await sandbox.files.createLink(path, { expiresIn: LINK_SECONDS });
  const anchor = document.createElement('a');
  anchor.href = toOwnOrigin(url);
  // Without it, an answer that is an error would replace the page.
  anchor.download = name;
  anchor.click();
}

interface Upload {
  file: Blob;
  signal: AbortSignal;
  note: (sentBytes: number) => void;
}

/** Sends a file. XMLHttpRequest reports how much was sent; fetch does not. */
export async function sendByLink(url: string, { file, signal, note }: Upload): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.upload.onprogress = ({ loaded }) => note(Math.min(loaded, file.size));
    request.onload = () => (request.status === 200 ? resolve() : reject(readError(request)));
    request.onerror = () => reject(new Error('The connection to the service was lost during the upload.'));
    request.onabort = () => reject(new DOMException('The upload was cancelled.', 'AbortError'));
    signal.addEventListener('abort', () => request.abort(), { once: true });
    request.open('PUT', toOwnOrigin(url));
    request.setRequestHeader('content-type', 'application/octet-stream');
    request.send(file);
  });
}

function readError({ status, responseText }: XMLHttpRequest): Error {
  try {
    const { error } = JSON.parse(responseText) as { error?: { message?: unknown } };
    if (typeof error?.message === 'string') return new Error(error.message);
  } catch (error) {
    // A proxy in front of the service may answer with its own page.
    console.debug(error);
  }
  return new Error(`The service answered with HTTP status ${status}.`);
}
