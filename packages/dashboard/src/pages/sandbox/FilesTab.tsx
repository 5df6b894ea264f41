import { FileBrowser } from './files/FileBrowser.tsx';
import type { TabProps } from './tab-props.ts';
import { WhileRunning } from './WhileRunning.tsx';
import '../../styles/files.css';

export function FilesTab(props: TabProps) {
  return (
    <WhileRunning {...props} icon="folder" subject="Its files">
      <FileBrowser sandbox={props.sandbox} />
    </WhileRunning>
  );
}
