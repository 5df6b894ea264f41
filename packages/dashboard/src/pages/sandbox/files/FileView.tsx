import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useEffect } from 'preact/hooks';
import type { FileInfo, Sandbox } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { Button } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { formatBytes, formatMoment } from '../../../ui/format.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Facts } from '../../../ui/Page.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { Loaded, Skeleton } from '../../../ui/states.tsx';
import { useAction } from '../../../ui/use-action.ts';
import { showHidden, showHiddenInLines } from '../../../ui/visible-text.ts';
import { codeOf } from '../sandbox-code.ts';
import { addressOf } from './addresses.ts';
import { describeMode } from './file-mode.ts';
import { nameOf } from './paths.ts';
import { MAX_IMAGE_BYTES, MAX_TEXT_BYTES, readView, type FileContent } from './read-view.ts';
import { downloadByLink } from './send-by-link.ts';

/** Shows a file: what it is, and its content if that is text or an image. */
export function FileView({
  sandbox,
  path,
  onClose,
}: {
  sandbox: Sandbox;
  path: string;
  onClose: () => void;
}) {
  const { route } = useLocation();
  const { id } = sandbox.record;
  const resource = useResource((signal) => readView(sandbox, path, signal), [id, path]);
  const isDirectory = resource.value?.content.kind === 'directory';
  useEffect(() => {
    if (isDirectory) route(addressOf(id, path), true);
  }, [isDirectory]);
  const name = nameOf(path);
  return (
    <Dialog title={showHidden(name)} size="large" onClose={onClose}>
      <Loaded resource={resource} rows={6}>
        {({ info, content }) => (
          <>
            <div class="file-facts">
              <FileFacts info={info} />
            </div>
            <Content content={content} size={info.size} />
          </>
        )}
      </Loaded>
      <Foot sandbox={sandbox} path={path} canDownload={resource.value?.content.kind !== 'special'} />
    </Dialog>
  );
}

function FileFacts({ info }: { info: FileInfo }) {
  const { type, size, mode, mtime, user, uid, group, gid, target } = info;
  return (
    <Facts
      facts={[
        ['Size', formatBytes(size)],
        ['Changed', formatMoment(mtime)],
        ['Mode', <span class="mono">{describeMode(mode, type)}</span>],
        ['Owner', <GuestText text={`${user ?? uid}:${group ?? gid}`} />],
        ...(target === null ? [] : [['Leads to', <GuestText text={target} />] as const]),
      ]}
    />
  );
}

function Content({ content, size }: { content: FileContent; size: number }) {
  switch (content.kind) {
    case 'text':
      return <Text text={content.text} isCut={content.isCut} />;
    case 'image':
      return <Image image={content.image} />;
    case 'large_image':
      return (
        <p class="soft">
          The image has {formatBytes(size)}. Those over {formatBytes(MAX_IMAGE_BYTES)} are not shown here.
        </p>
      );
    case 'binary':
      return (
        <p class="soft">This is neither text nor an image that can be shown. Download it to look at it.</p>
      );
    case 'special':
      return <p class="soft">This is a device, a pipe or a socket. It has no content to show.</p>;
    // The page of the directory is about to be shown.
    default:
      return <Skeleton />;
  }
}

function Text({ text, isCut }: { text: string; isCut: boolean }) {
  if (text === '') return <p class="soft">The file is empty.</p>;
  return (
    <>
      <pre class="code file-text" tabIndex={0} aria-label="Content of the file">
        {showHiddenInLines(text)}
      </pre>
      {isCut && (
        <p class="soft">These are the first {formatBytes(MAX_TEXT_BYTES)}. Download the file for the rest.</p>
      )}
    </>
  );
}

function Image({ image }: { image: Blob }) {
  const url = useSignal<string | undefined>(undefined);
  const isDamaged = useSignal(false);
  useEffect(() => {
    const own = URL.createObjectURL(image);
    url.value = own;
    isDamaged.value = false;
    return () => URL.revokeObjectURL(own);
  }, [image]);
  if (isDamaged.value) return <p class="soft">The image is damaged and cannot be shown.</p>;
  return (
    <div class="file-image">
      <img src={url.value} alt="Content of the file" onError={() => (isDamaged.value = true)} />
    </div>
  );
}

function Foot({ sandbox, path, canDownload }: { sandbox: Sandbox; path: string; canDownload: boolean }) {
  const action = useAction();
  return (
    <>
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <div class="dialog-foot">
        <CopyAsCode
          {...codeOf({
            id: sandbox.record.id,
            method: 'GET',
            path: `/files/download?path=${encodeURIComponent(path.toWellFormed())}`,
            typescript: `console.log(await sandbox?.download(${toLiteral(path)}));`,
            python: `print(sandbox.download(${toPython(path)}))`,
          })}
        />
        <span class="gap" />
        <CopyButton text={path} label="Copy the path">
          Copy path
        </CopyButton>
        <Button
          kind="primary"
          icon="download"
          isBusy={action.isBusy}
          isDisabled={!canDownload}
          onClick={() => void action.run(() => downloadByLink(sandbox, path, nameOf(path)))}
        >
          Download
        </Button>
      </div>
    </>
  );
}
