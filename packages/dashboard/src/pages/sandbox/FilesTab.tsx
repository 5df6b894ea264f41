import { FileBrowser } from './files/FileBrowser.tsx';
import { UploadProgress } from './files/UploadProgress.tsx';
import type { TabProps } from './tab-props.ts';
import { WhileRunning } from './WhileRunning.tsx';
import '../../styles/files.css';

export function FilesTab(props: TabProps) {
  return (
    <div class="stack">
      {/* An upload fails with the sandbox that it goes to, which its card says. */}
      {props.record.status !== 'running' && <UploadProgress sandboxId={props.record.id} />}
      <WhileRunning {...props} icon="folder" subject="Its files">
        <FileBrowser sandbox={props.sandbox} />
      </WhileRunning>
    </div>
  );
}
