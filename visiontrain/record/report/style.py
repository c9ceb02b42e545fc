"""How pages look: one sheet for light, dark, phones and paper. Colours are variables, so that charts follow them."""

LIGHT = """
--ground:#fbfbfa;--panel:#fff;--wash:#f3f3f1;--ink:#1a1c1f;--soft:#5f646c;--line:#e6e6e2;--shade:61 99 221;--cell:49 87 214;
--good:#197a48;--warn:#8a5a00;--bad:#bd2c45;
--s0:#a9aeb5;--s1:#3d63dd;--s2:#d4691f;--s3:#12907e;--s4:#8656cf;--s5:#c93a58;--s6:#75841a;--s7:#ab4f8a;--s8:#4f6c85;
""".replace("\n", "")
DARK = """
--ground:#0f1113;--panel:#16181b;--wash:#1d2024;--ink:#e9eaec;--soft:#a0a6ae;--line:#292c31;--shade:110 150 255;--cell:66 104 232;
--good:#52c788;--warn:#e0ac4c;--bad:#f2788d;
--s0:#5c636c;--s1:#7ba0ff;--s2:#f2995b;--s3:#46c4b1;--s4:#b593f5;--s5:#f47f95;--s6:#b6c459;--s7:#dd8fc0;--s8:#9db4c7;
""".replace("\n", "")

STYLE = (
    f":root{{color-scheme:light dark;{LIGHT}}}\n"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}\n"
    + """
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:24px;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.55 -apple-system,"Segoe UI",Inter,Roboto,
  "Noto Sans","Helvetica Neue","Liberation Sans",Arial,system-ui,sans-serif;-webkit-font-smoothing:antialiased}
h1,h2,h3,p,figure,dl,dd,ul,ol{margin:0;padding:0}
h1{font-size:28px;line-height:1.2;font-weight:650;letter-spacing:-.02em;overflow-wrap:anywhere;margin-bottom:8px}
h2{font-size:19px;line-height:1.3;font-weight:650;letter-spacing:-.01em;margin-bottom:14px}
h3{font-size:14px;line-height:1.4;font-weight:600;margin:26px 0 10px}
a{color:inherit}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.88em}
pre{margin:0;padding:12px 14px;background:var(--wash);border-radius:8px;overflow-x:auto;line-height:1.5}
code.line{display:block;padding:10px 14px;background:var(--wash);border-radius:8px;overflow-wrap:anywhere;user-select:all}
.soft{color:var(--soft)}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.lead{font-size:16px;max-width:72ch;color:var(--soft);overflow-wrap:anywhere}
.layout{display:grid;grid-template-columns:176px minmax(0,1120px);gap:48px;max-width:1408px;margin:0 auto;padding:40px 32px 64px}
nav{position:sticky;top:40px;align-self:start;font-size:14px;max-height:calc(100vh - 80px);overflow-y:auto}
nav b{display:block;padding:0 10px 12px;font-weight:650;letter-spacing:-.01em}
nav a{display:block;padding:5px 10px;border-radius:6px;color:var(--soft);text-decoration:none}
nav a:hover{color:var(--ink)}
nav a[aria-current]{color:var(--ink);background:var(--wash)}
section{margin-top:52px}
header+section{margin-top:36px}
footer{margin-top:56px;padding-top:18px;border-top:1px solid var(--line);color:var(--soft);font-size:13px}
.over{display:flex;flex-wrap:wrap;align-items:center;gap:6px 12px;margin-bottom:10px;font-size:13px;color:var(--soft)}
.pill{display:inline-flex;align-items:center;gap:7px;padding:2px 10px 2px 9px;border:1px solid var(--line);border-radius:99px;
  background:var(--panel);color:var(--ink);font-weight:550;white-space:nowrap}
.pill::before{content:"";width:8px;height:8px;border-radius:50%;background:currentColor}
.pill.good::before{background:var(--good)}.pill.warn::before{background:var(--warn)}.pill.bad::before{background:var(--bad)}
.pill.busy::before{background:var(--s1);animation:pulse 1.6s ease-in-out infinite}
@keyframes pulse{50%{opacity:.25}}
.panel{background:var(--panel);border:1px solid var(--line);border-radius:12px;padding:18px 20px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:1px;margin-top:24px;background:var(--line);
  border:1px solid var(--line);border-radius:12px;overflow:hidden}
.card{background:var(--panel);padding:14px 18px;min-width:0}
.card>span{display:block;font-size:13px;color:var(--soft)}
.card>b{display:block;font-size:24px;line-height:1.3;font-weight:620;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.card.first{grid-column:span 2}
.card.first>b{font-size:40px;line-height:1.1}
.card.first>b{display:flex;align-items:end;justify-content:space-between;gap:16px}
.card>small{display:block;font-size:12.5px;color:var(--soft);overflow-wrap:anywhere}
.card svg{flex:0 1 170px;min-width:60px;height:auto;margin-bottom:6px;overflow:visible}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,320px),1fr));gap:16px}
.grid.two{grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr))}
.grid+.grid,.panel+.panel,.panel+.grid,.grid+.panel{margin-top:16px}
.grid>*{margin:0!important;min-width:0}
.chart{container-type:inline-size;display:flex;flex-direction:column;padding:14px 16px 10px}
.chart>figcaption{font-size:14px;font-weight:600}
.chart>figcaption small{display:block;font-size:12.5px;font-weight:400;color:var(--soft)}
.chart svg{display:block;width:100%;height:auto;margin-top:auto;padding-top:8px;overflow:visible;touch-action:pan-y}
svg text{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
@container (min-width:440px){svg text{font-size:8.5px}}
svg path,svg line{vector-effect:non-scaling-stroke}
svg .gridline{stroke:var(--line);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1;opacity:.5}
svg .rule{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;visibility:hidden}
.series{color:var(--c)}
.series path.line{fill:none;stroke:currentColor;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}
.series path.band{fill:currentColor;opacity:.16}
.series circle{fill:currentColor}
.series circle.at{visibility:hidden;stroke:var(--panel);stroke-width:1.5}
.series.thin path.line{stroke-width:1}
.series.strong path.line{stroke-width:2.5}
.series.dashed path.line{stroke-dasharray:5 4}
.c0{--c:var(--s0)}.c1{--c:var(--s1)}.c2{--c:var(--s2)}.c3{--c:var(--s3)}.c4{--c:var(--s4)}.c5{--c:var(--s5)}.c6{--c:var(--s6)}
.c7{--c:var(--s7)}.c8{--c:var(--s8)}.c9{--c:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:4px;font-size:12.5px;color:var(--soft)}
.legend span{display:inline-flex;align-items:center;gap:6px;min-width:0;overflow-wrap:anywhere}
.legend span::before{content:"";flex:none;width:12px;height:3px;border-radius:2px;background:var(--c)}
.legend span.dashed::before{background:linear-gradient(90deg,var(--c) 40%,transparent 40% 60%,var(--c) 60%)}
.legend b{color:var(--ink);font-weight:550;font-variant-numeric:tabular-nums}
.pace{margin-top:20px;max-width:560px}.pace small{display:block;margin-top:6px;color:var(--soft);font-size:13px}
.note{font-size:13px;margin-top:12px}h3+.note{margin:-6px 0 10px}
h3.top{margin-top:0}
.matrix{display:block;width:100%;height:auto;margin:0 auto}
.matrix rect{fill:rgb(var(--cell))}
.matrix rect.frame{fill:var(--wash)}
.matrix text.on{fill:#fff}.matrix text.off{fill:var(--ink)}
.matrix text.name{font-size:12px}
.tip{position:fixed;z-index:9;pointer-events:none;visibility:hidden;max-width:280px;padding:7px 10px;border-radius:8px;
  background:var(--ink);color:var(--ground);font-size:12px;line-height:1.5;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{padding-left:2px}
tbody tr:last-child td{border-bottom:0}
th{font-size:12.5px;font-weight:550;color:var(--soft);white-space:nowrap}
td{overflow-wrap:anywhere;min-width:5em}
.number{text-align:right;white-space:nowrap;overflow-wrap:normal;min-width:0}
th button{all:unset;cursor:pointer}
th button:focus-visible{outline:2px solid var(--s1);outline-offset:2px}
th button::after{content:"\\2195";padding-left:4px;opacity:.35}
th[aria-sort=ascending] button::after{content:"\\2191";opacity:1}
th[aria-sort=descending] button::after{content:"\\2193";opacity:1}
.meter{display:grid;grid-template-columns:minmax(96px,auto) minmax(60px,1fr) auto;gap:8px 14px;align-items:center;font-size:14px}
.meter i{display:block;height:10px;border-radius:5px;background:rgb(var(--shade)/.14);overflow:hidden}
.meter i::before{content:"";display:block;height:100%;width:var(--w);border-radius:5px;
  background:linear-gradient(90deg,rgb(var(--shade)/.5) var(--b),var(--s1) var(--b))}
.meter em{font-style:normal;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.progress{height:8px;border-radius:4px;background:rgb(var(--shade)/.14);overflow:hidden}
.progress i{display:block;height:100%;border-radius:4px;background:var(--s1)}
.list{list-style:none;max-width:96ch}
.list li{position:relative;padding:4px 0 4px 20px;overflow-wrap:anywhere}
.list li::before{content:"";position:absolute;left:4px;top:13px;width:5px;height:5px;border-radius:50%;background:var(--s0)}
.list li.good::before{background:var(--good)}.list li.warn::before{background:var(--warn)}.list li.bad::before{background:var(--bad)}
.list li.good,.list li.warn,.list li.bad{color:inherit}
.settings td:first-child,.settings td:nth-child(2){white-space:nowrap}.settings td:nth-child(2){white-space:normal;min-width:5em}
.settings td:nth-child(3){color:var(--soft)}
dl{display:grid;grid-template-columns:minmax(110px,auto) minmax(0,1fr);gap:6px 20px;font-size:14px}
dt{color:var(--soft)}
dd{overflow-wrap:anywhere}
details>summary{cursor:pointer;padding:6px 0;color:var(--soft);font-size:14px}
details>summary:hover{color:var(--ink)}
details[open]>summary{margin-bottom:8px}
.picture button{all:unset;display:block;cursor:zoom-in;width:100%}
.picture button:focus-visible{outline:2px solid var(--s1);outline-offset:2px}
.picture img{display:block;width:100%;height:auto;border-radius:8px}
.picture .plate{background:#fff;padding:8px}
.picture figcaption:not(:empty){margin-top:8px;font-size:13px;color:var(--soft)}
.switch>input{position:absolute;opacity:0;pointer-events:none}
.switch>label{display:inline-block;margin:0 4px 12px 0;padding:4px 12px;border:1px solid var(--line);border-radius:99px;font-size:13px;
  color:var(--soft);cursor:pointer;user-select:none}
.switch>input:checked+label{background:var(--ink);border-color:var(--ink);color:var(--ground)}
.switch>input:focus-visible+label{outline:2px solid var(--s1);outline-offset:2px}
.switch>.picture{display:none}
.switch>input:nth-of-type(1):checked~.picture:nth-of-type(1),.switch>input:nth-of-type(2):checked~.picture:nth-of-type(2){display:block}
.run{display:inline-flex;align-items:baseline;gap:.4em;max-width:100%;overflow-wrap:anywhere}
.run::before{content:"";flex:none;width:.62em;height:.62em;border-radius:.18em;background:var(--c)}
.path{font-size:12.5px;margin-top:2px}
.mind{border-left:4px solid var(--warn)}
.across table{table-layout:fixed;min-width:calc(152px + var(--runs)*76px)}
.across th:first-child{width:152px}
@media (min-width:900px){.across th:first-child{width:26%}}
.across td:first-child,.across th:first-child{position:sticky;left:0;background:var(--panel)}
.across+.across,.across+details{margin-top:4px}
.panel>h3:first-child{margin-top:0}
.runs table{min-width:760px}
.legend b{white-space:nowrap}
.lead+.grid,.list+.grid{margin-top:14px}
.runs td:first-child{min-width:150px}
dialog{width:100vw;height:100vh;max-width:none;max-height:none;margin:0;padding:0;border:0;background:#000c;overflow:auto;cursor:zoom-out}
dialog img{display:block;min-width:100%;min-height:0;margin:auto}
"""
    + "".join(f".by-run i:nth-of-type(8n+{n})::before{{background:var(--s{n})}}" for n in range(1, 9))
    + """
@media (max-width:1080px){
  .layout{display:block;padding:0 24px 48px}
  nav{top:0;z-index:5;display:flex;align-items:center;gap:2px;margin:0 -24px 24px;padding:8px 20px;overflow-x:auto;white-space:nowrap;
    background:var(--ground);border-bottom:1px solid var(--line);scrollbar-width:none}
  nav b{padding:0 10px 0 4px}
  html{scroll-padding-top:60px}
}
@media (max-width:560px){
  body{font-size:16px}
  .layout{padding:0 16px 40px}
  nav{margin:0 -16px 20px;padding:8px 12px}
  h1{font-size:24px}
  section{margin-top:44px}
  .cards{grid-template-columns:1fr 1fr}
  .card{padding:12px 14px}
  .card.first,.card:last-child:nth-child(even){grid-column:1/-1}
  .panel{padding:14px}
  .chart{padding:12px 12px 8px}
  th,td{padding:7px 8px}
  .settings thead{display:none}
  .settings tr{display:grid;grid-template-columns:auto minmax(0,1fr);border-bottom:1px solid var(--line);padding:6px 0}
  .settings td{border:0;padding:2px 0}.settings td:nth-child(2){text-align:right;padding-left:16px}
  .settings td:nth-child(3){grid-column:1/-1;font-size:14px}
  dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:10px}
  .switch>label{padding:7px 14px}
}
@media print{
  nav,.switch>label,th button::after{display:none}
  .layout{display:block;padding:0;max-width:none}
  body{background:#fff;font-size:12px}
  section{margin-top:28px}
  .panel,.card,.picture,tr{break-inside:avoid}
  h2,h3{break-after:avoid}
  .switch>.picture{display:block;margin-bottom:16px}
  *{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
)
