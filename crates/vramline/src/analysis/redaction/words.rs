//! Public words: names that frameworks, compilers and Vramline itself use.
//!
//! All other words are private. A missing word only costs readability: a placeholder appears instead of a public name. A word too
//! many can reveal something. So the lists contain words of the frameworks' sources, and no words that people choose for their
//! models, layers or functions.

use rustc_hash::FxHashSet;

use crate::trace::without_number;

/// TensorFlow ops, and scopes that its graph optimizers create.
const TENSORFLOW_OPS: &str = "\
    Abs Acos Acosh Add AddN AddV2 All Any ApproximateEqual ArgMax ArgMin ArithmeticOptimizer Asin Asinh Assert Assign AssignAdd \
    AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp Atan Atan2 Atanh AutoReloadVariableOp AvgPool AvgPool3D \
    AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchNormWithGlobalNormalization BatchToSpaceND Betainc BiasAdd \
    BiasAddGrad Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastGradientArgs BroadcastTo Bucketize Case Cast \
    Ceil CheckNumerics Cholesky CholeskyGrad ClipByValue CollectiveGather CollectiveReduce CollectiveReduceV2 Complex ComplexAbs \
    Concat ConcatOffset ConcatV2 ConjugateTranspose Const ConstantFolding ControlTrigger Conv Conv2D Conv2DBackpropFilter \
    Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Cos Cosh \
    CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage Cross CTCLoss CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 \
    CudnnRNNBackpropV3 CudnnRNNParamsSize CudnnRNNV2 CudnnRNNV3 Cumprod Cumsum DebugGradientIdentity DeleteIterator DeleteMultiDeviceIterator \
    DepthToSpace DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dequantize \
    DestroyResourceOp Diag DiagPart Digamma Dilation2D Div DivNoNan DynamicPartition DynamicStitch Einsum Elu EluGrad Empty \
    EmptyTensorList EnsureShape Enter Equal Erf Erfc Erfinv EuclideanNorm Exit Exp ExpandDims Expm1 ExtractImagePatches FakeParam \
    FakeQuantWithMinMaxVars FFT FFT2D FFT3D Fill Floor FloorDiv FloorMod FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 \
    FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 FusedConv2D FusedMatMul Gather GatherNd GatherV2 Gelu GeluGrad Greater \
    GreaterEqual HashTableV2 HostConst Identity IdentityN If IFFT IFFT2D IFFT3D Imag ImageProjectiveTransformV3 InTopKV2 Initializer \
    Inv InvGrad Invert InvertPermutation IRFFT IRFFT2D IsFinite IsInf IsNan IteratorGetNext IteratorGetNextAsOptional \
    IteratorGetNextSync IteratorV2 L2Loss LayerNorm LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma LinSpace ListDiff Log Log1p \
    LogicalAnd LogicalNot LogicalOr LogMatrixDeterminant LogSoftmax LookupTableFindV2 LoopCond LowerBound LRN LRNGrad MatMul MatrixBandPart \
    MatrixDeterminant MatrixDiag MatrixDiagPart MatrixDiagPartV3 MatrixDiagV3 MatrixInverse MatrixSetDiag MatrixSetDiagV3 MatrixSolve \
    MatrixTriangularSolve Max MaxPool MaxPool2d MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolGradGrad MaxPoolV2 MaxPoolWithArgmax Maximum \
    MaximumGrad Mean Merge Min Minimum MinimumGrad MirrorPad MirrorPadGrad Mod Mul MulNoNan MultiDeviceIteratorGetNextFromShard \
    Multinomial NcclAllReduce Neg NextAfter NextIteration NonMaxSuppressionV3 NonMaxSuppressionV5 NoOp NotEqual OneHot OnesLike \
    OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone Pack Pad PadV2 ParallelConcat PartitionedCall Placeholder \
    PlaceholderWithDefault Polygamma Pow PreventGradient Print PrintV2 Prod Qr Quantize QuantizeAndDequantizeV2 RandomGamma RandomPoissonV2 \
    RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt Range Rank ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad \
    Recv RefSwitch Relu Relu6 Relu6Grad ReluGrad Remapper Reshape ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor \
    ResizeNearestNeighborGrad ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdam \
    ResourceApplyAdamWithAmsgrad ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyGradientDescent \
    ResourceApplyKerasMomentum ResourceApplyMomentum ResourceApplyRMSProp ResourceGather ResourceScatterAdd ResourceScatterUpdate \
    ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyFtrl ResourceSparseApplyKerasMomentum \
    ResourceStridedSliceAssign Reverse ReverseSequence ReverseV2 RFFT RFFT2D RightShift Rint RngReadAndSkip Roll Round Rsqrt RsqrtGrad \
    ScatterAdd ScatterNd ScatterUpdate SegmentMax SegmentMean SegmentSum Select SelectV2 SelfAdjointEigV2 Selu SeluGrad Send Shape ShapeN \
    Sigmoid SigmoidGrad Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad \
    SpaceToBatchND SpaceToDepth SparseFillEmptyRows SparseReshape SparseSegmentMean SparseSegmentMeanGrad SparseSegmentSqrtN \
    SparseSegmentSum SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseMatMul SparseToDense Split SplitV Sqrt SqrtGrad Square \
    SquaredDifference Squeeze Stack StatefulPartitionedCall StatefulUniformFullInt StatelessIf StatelessMultinomial \
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormalV2 StatelessRandomUniformFullIntV2 \
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2 StatelessWhile StopGradient StridedSlice \
    StridedSliceGrad Sub Sum Svd Switch Tan Tanh TanhGrad TensorArrayV3 TensorListConcatV2 TensorListElementShape TensorListFromTensor \
    TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize \
    TensorListSetItem TensorListSplit TensorListStack TensorScatterAdd TensorScatterUpdate Tensordot Tile TopKV2 Transpose TruncateDiv \
    TruncateMod TruncatedNormal Unique UniqueV2 UniqueWithCounts Unpack UnravelIndex UnsortedSegmentMax UnsortedSegmentMean \
    UnsortedSegmentSum UpperBound VarHandleOp VarIsInitializedOp Variable VariableV2 Where While Xdivy XlaLaunch Xlog1py Xlogy Zeros ZerosLike \
    Zeta AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMultiDeviceIteratorV3 AnonymousMemoryCache MakeIterator \
    AutoShardDataset BatchDatasetV2 BatchDataset CacheDatasetV2 ConcatenateDataset FilterDataset FiniteRepeatDataset FlatMapDataset \
    ForeverRepeatDataset GeneratorDataset InterleaveDataset MapAndBatchDataset MapDataset MaxIntraOpParallelismDataset ModelDataset \
    OptionsDataset PaddedBatchDatasetV2 ParallelInterleaveDatasetV4 ParallelMapDatasetV2 PrefetchDataset PrivateThreadPoolDataset \
    RangeDataset RebatchDataset RebatchDatasetV2 RepeatDataset RootDataset ShardDataset ShuffleAndRepeatDatasetV2 ShuffleDatasetV3 \
    SkipDataset TakeDataset TensorDataset TensorSliceDataset TFRecordDataset WindowDataset WrapDatasetVariant UnwrapDatasetVariant \
    ZipDataset ReduceDataset DatasetCardinality DatasetToGraphV2 XLA_Args";

/// Scopes that say how a graph was called, which pass it belongs to, or which op of Keras opened them.
const SCOPES: &str = "\
AdamWeightDecay adam_weight_decay     cond then else while body training gradient_tape gradients Initializer convolution einsum moments batchnorm add mul sub truediv \
    floordiv matmul scan closed_call core_call checkpoint remat rematted_computation custom_jvp_call custom_vjp_call shard_map pjit \
    replica compile_loss weighted_loss loss strided_slice range zeros ones zeros_like ones_like random_uniform random_normal \
    truncated_normal stateless_random_uniform stateless_random_normal conv_transpose div_no_nan global_norm clip_by_global_norm cast \
    mean_squared_error mse mae mean_absolute_error binary_crossentropy categorical_crossentropy sparse_categorical_crossentropy \
    pivot_t pivot_f packed num_elements tf_pjrt_compile_thread_pool tf_pjrt_thread_pool tf_Compute tf_GPU_Event_Manager \
    tf_data_iterator_resource tf_data_private_threadpool tf_data_iterator_get_next py_xla_execute py_xla_callback EventFDAsyncWorker \
    PolynomialDecay CosineDecay ExponentialDecay PiecewiseConstantDecay CosineDecayRestarts InverseTimeDecay";

/// Last parts of names that are not ops: constants and operands of frameworks, and variables of their layers and optimizers.
const LEAVES: &str = "\
    x y z a b begin end size dim start stop delta limit range stack scalar shape axis axes perm multiples paddings \
    reduction_indices input_sizes zeros ones zeros_like ones_like zeros_tensor tensor tensor_list element_shape num_elements \
    strided_slice truediv truediv_recip RealDiv_recip floordiv mod add sub mul neg cond cond_v2 packed output_shape constant const \
    conv_transpose convolution div_no_nan optional random_uniform random_normal alpha beta epsilon depth on_value off_value fill value \
    update_rule_decay cast indices split_dim dropout_mask maxval minval mean stddev seed key counter alg tf.constant tf.Variable \
    kernel bias gamma moving_mean moving_variance embeddings embedding scale weight weights momentum velocity iteration learning_rate \
    iterations running_mean running_var num_batches_tracked recurrent_kernel depthwise_kernel pointwise_kernel mu nu count trace \
    exp_avg exp_avg_sq max_exp_avg_sq momentum_buffer square_avg grad_avg step";

/// Words in the names of XLA instructions and JAX primitives.
const COMPILER_WORDS: &str = "\
    abs accumulate acos acosh add after all allreduce and approx arange arg argmax argmin argsort array asarray asin asinh associative \
    astype at atan atan2 atanh async average barrier batch batched bernoulli bessel bit bitcast bitwise bits block broadcast bw call \
    categorical cbrt ceil ceiling cholesky clamp clip clone collective combine compare complex computation concat concatenate cond \
    conditional conj constant conv convert convolution copy core cos cosh cotangents count cublas cublaslt cudnn cuda cummax cummin cumprod \
    cumsum cumlogsumexp custom cusolver cutlass dequantize device diag diagonal digamma dim dilated div divide domain done donated dot \
    dtype dynamic eigh einsum element elementwise elu empty eq equal erf erfc erfinv exp exp2 expand expm1 exponential eye fft fill filter fixed \
    flash flatten flip floor fmha fmod for forward from full fused fusion fw gamma gather ge gelu gemm general generator get glu greater \
    gt gumbel host igamma imag in index infeed init inner input instruction int integer inv inverse invert iota is isfinite isinf isnan issubdtype \
    item jvp key kernel kron le leaky left less lgamma lhs like linalg linspace log log1p logaddexp logical logistic logsoftmax logsumexp \
    loop lstm lt lu map matmul max maximum mean median meshgrid min minimum mod moveaxis mul multi multiply nan nccl ne neg negate nextafter \
    nonzero norm normal not offload one ones op operand opt optimization or outer outfeed output pack pad pair param parameter part \
    partition pass permutation permute pinned pjit pmap pmax pmean pool population pow power ppermute precision prng prod product psum put \
    qr quantize rand random range ravel real recv reduce reduction relu relu6 rem remainder remat repeat replica reshape resize result \
    reverse rhs right rng roll round rounding rsqrt scaled scan scatter search searchsorted seed select selected selu send set shape shard sharding \
    shift sigmoid sign silu sin sinh size slice softmax softplus sort split sqrt square squeeze stable stack start state std stop subtract sub sum svd \
    swap swapaxes swiglu tan tanh take tensor threefry tile to top topk token transpose triangular tril triton triu true trunc truncate \
    tuple type u32 unary uniform unpack unreduced unstack update vecdot var variance vmap vmem wait where while window wrapped xor zero zeros 2x32 x64";

/// Functions of Keras, TensorFlow and Python itself.
const FUNCTIONS: &str = "\
    <lambda> _lambda_ _lambda main _unnamed_wrapped_function_ train_function test_function predict_function \
    train_step test_step predict_step one_step_on_data one_step_on_iterator multi_step_on_iterator one_step_on_data_distributed \
    multi_step_on_data one_step_on_data_distributed initialize_variables";

/// JAX functions that wrap other functions.
pub(super) const TRANSFORMS: [&str; 20] = [
    "jit",
    "pjit",
    "xla_call",
    "jvp",
    "transpose",
    "vmap",
    "pmap",
    "remat",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_call",
    "custom_jvp_call",
    "shard_map",
    "linearize",
    "rematted_computation",
    "named",
    "named_call",
    "core_call",
    "closed_call",
];

/// Words in the names of arguments that show their purpose.
const ARGUMENTS: &str = "\
    params parameters weights batch_stats opt_state optimizer_state optimizer opt batch inputs labels images tokens state args kwargs \
    kernel bias scale embedding mean var mu nu count trace step inner_state hyperparams rng key dropout_rng";

/// Words in the names of the frameworks' pools.
const POOLS: &str = "\
    gpu cpu tpu bfc allocator for host mklcpu mkl pool rdma async cuda hip rocm xla pinned device devices stream executor memory unified managed \
    cudamallocasync malloc executables unknown process tfrt streamexecutor pjrt metal npu collective hbm";

/// The types of exceptions that Python, TensorFlow, JAX and PyTorch raise.
const EXCEPTIONS: &str = "\
    ArithmeticError AssertionError AttributeError BaseException BrokenPipeError ConnectionError EOFError Exception FloatingPointError \
    ImportError IndexError InternalError InvalidArgumentError IsADirectoryError JaxRuntimeError KeyError KeyboardInterrupt LookupError \
    MemoryError ModuleNotFoundError NameError NotImplementedError OSError OutOfMemoryError OverflowError PermissionError \
    RecursionError ResourceExhaustedError RuntimeError StopIteration SystemError SystemExit TimeoutError TypeError UnicodeDecodeError \
    UnknownError ValueError XlaRuntimeError ZeroDivisionError";

/// Optimizers of PyTorch, as its profiler names them.
pub(super) const TORCH_OPTIMIZERS: [&str; 16] = [
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "LBFGS",
    "ASGD",
    "Rprop",
    "SparseAdam",
    "Adafactor",
    "Muon",
    "Lion",
];

/// Nodes of PyTorch's backward pass, without `Backward` and their number.
const TORCH_NODES: &str = "\
    Abs AccumulateGrad Add Addbmm Addcdiv Addcmul Addmm Addmv AdaptiveAvgPool2D AdaptiveMaxPool2D Amax Amin AsStrided AvgPool2D Baddbmm \
    BatchNorm BinaryCrossEntropy BinaryCrossEntropyWithLogits Bmm Cat Clamp ClampMin Clone Constant ConstantPadNd Convolution Copy CopySlices Cos \
    CudnnBatchNorm CudnnConvolution CudnnRnn Cumsum Detach Div Dot Elu Embedding EmbeddingBag Erf Exp Expand Fft FusedDropout Gather Gelu Glu \
    GridSampler2D Hardswish Index IndexPut IndexSelect Leaky LeakyRelu LinalgVectorNorm Linear Log LogSoftmax Logsumexp MaskedFill Max \
    MaxPool2DWithIndices Mean Min Mm MseLoss Mul Mv NativeBatchNorm NativeDropout NativeGroupNorm NativeLayerNorm Neg NllLoss NllLoss2D Norm \
    Permute Pow Prod Relu Repeat Reshape Rsqrt ScaledDotProductCudnnAttention ScaledDotProductEfficientAttention \
    ScaledDotProductFlashAttention Scatter ScatterAdd Select Sigmoid Silu Sin Slice SmoothL1Loss Softmax Softplus Split Sqrt Squeeze Stack \
    Std Sub Sum T Tanh Threshold To ToCopy TopK Transpose Tril Triu Unbind Unfold Unsafe UnsafeSplit UnsafeView Unsqueeze UpsampleBilinear2D \
    UpsampleNearest2D Var VarMean View Where";

/// Labels and reasons that Vramline itself writes, with `#` for each number.
const SENTENCES: [&str; 58] = [
    "attached",
    "exit",
    "stopped",
    "SIGTERM",
    "tensorflow: begins",
    "jax: begins",
    "torch: begins",
    "stops: its steps are over",
    "stops: its time is over",
    "stops: the program ended",
    "tensorflow: trace started",
    "jax: trace started",
    "torch: trace started",
    "trace stopped: step limit reached",
    "trace stopped: time limit reached",
    "trace stopped: the program ended",
    "trace stopped: the process was terminated",
    "trace stopped: the probe is complete",
    "trace stopped: the program starts its own profiler",
    "trace stopped: the program records its own memory history",
    "trace written: # steps in # s; # MB, written in # s; at most # MB of host memory",
    "trace written: # step in # s; # MB (# MB per step), written in # s; at most # MB of host memory",
    "trace written: # steps in # s; # MB (# MB per step), written in # s; at most # MB of host memory",
    "trace written: # step in # s; # s longer than requested; # MB (# MB per step), written in # s; at most # MB of host memory",
    "trace written: # steps in # s; # s longer than requested; # MB (# MB per step), written in # s; at most # MB of host memory",
    "written: # steps in # s, # MB, in # s",
    "written: # steps in # s, # MB, # MB a step, in # s",
    "written: # steps in # s, # MB, in # s, after at most # MB of memory",
    "written: # steps in # s, # MB, # MB a step, in # s, after at most # MB of memory",
    "written: # steps in # s, # MB, # MB a step, in # s, after at most # MB of memory; # s longer than asked for",
    "limit of GPU:#: # of # bytes",
    "limit of /physical_device:GPU:#: # MiB",
    "--limit is not applied to JAX: the device's memory is not known",
    "--limit is not applied to JAX: the total memory of the device is unknown",
    "XLA_PYTHON_CLIENT_MEM_FRACTION=#: # of # bytes",
    "JAX keeps no memory statistics of a CPU",
    "JAX keeps no memory statistics of a GPU",
    "this version of JAX tells no limit",
    "this version of JAX does not report a limit",
    "no device in use",
    "library-missing",
    "library-too-old",
    "driver-not-loaded",
    "version-mismatch",
    "no-permission",
    "not-supported",
    "gpu-lost",
    "not-found",
    "failed",
    "other",
    "fit",
    "evaluate",
    "predict",
    "Fit",
    "Evaluate",
    "Predict",
    "vramline verify applies accumulate",
    "vramline verify applies accumulate: #",
];

/// The lists as sets.
#[derive(Debug)]
pub(super) struct Words {
    ops: FxHashSet<&'static str>,
    scopes: FxHashSet<&'static str>,
    leaves: FxHashSet<&'static str>,
    compiler: FxHashSet<&'static str>,
    functions: FxHashSet<&'static str>,
    arguments: FxHashSet<&'static str>,
    pools: FxHashSet<&'static str>,
    exceptions: FxHashSet<&'static str>,
    nodes: FxHashSet<&'static str>,
}

impl Default for Words {
    fn default() -> Words {
        let set = |list: &'static str| list.split_whitespace().collect();
        Words {
            ops: set(TENSORFLOW_OPS),
            scopes: set(SCOPES),
            leaves: set(LEAVES),
            compiler: set(COMPILER_WORDS),
            functions: set(FUNCTIONS),
            arguments: set(ARGUMENTS),
            pools: set(POOLS),
            exceptions: set(EXCEPTIONS),
            nodes: set(TORCH_NODES),
        }
    }
}

impl Words {
    /// Whether a name of an op, of a compiled instruction or of a framework's variable is public: `MatMul_3`, `loop_add_fusion.12`.
    pub(super) fn is_leaf(&self, text: &str) -> bool {
        let stem = without_tail(text);
        self.is_op(stem) || self.leaves.contains(stem) || self.is_of_compiler(stem)
    }

    /// Whether a scope is one that frameworks open, not a layer: `while_1`, `MatMul_grad`.
    pub(super) fn is_scope(&self, text: &str) -> bool {
        let stem = without_number(text);
        let before = stem.strip_suffix("_grad");
        self.scopes.contains(stem)
            || self.is_op(stem)
            || before.is_some_and(|before| self.scopes.contains(before))
    }

    /// Whether a function belongs to a framework or has no name.
    pub(super) fn is_function(&self, text: &str) -> bool {
        let stem = without_tail(text);
        self.functions.contains(stem) || self.is_of_compiler(stem.trim_start_matches('_'))
    }

    /// Whether a word of an argument's name shows its purpose.
    pub(super) fn is_argument(&self, text: &str) -> bool {
        self.arguments.contains(text)
    }

    /// Whether all words in the name of a pool are public.
    pub(super) fn is_pool(&self, name: &str) -> bool {
        let is_known = |word: &str| {
            let letters = word.trim_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
            letters.is_empty() || self.pools.contains(letters.as_str())
        };
        // Several numbers may be an IP address; a single number is not.
        let has_word = name.contains(|c: char| c.is_ascii_alphabetic());
        let is_ordinal = name.len() < 6 && name.bytes().all(|byte| byte.is_ascii_digit());
        (has_word || is_ordinal)
            && name.is_ascii()
            && name.split(|c: char| !c.is_ascii_alphanumeric()).all(is_known)
    }

    /// Whether an exception has a public type.
    pub(super) fn is_exception(&self, name: &str) -> bool {
        self.exceptions.contains(name)
    }

    /// Whether a name belongs to PyTorch's own C++ code.
    pub(super) fn is_of_torch(&self, name: &str) -> bool {
        let node = name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix("Backward");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let is_native = ["at::_ops::", "at::native::", "c10::"].iter().any(|space| name.starts_with(space));
        node.is_some_and(|node| self.nodes.contains(node)) || is_native && name.chars().all(is_plain)
    }

    fn is_op(&self, stem: &str) -> bool {
        let marks = ["_MklNative", "_MklEager", "_Mkl", "_Fused"];
        let kind = marks.into_iter().find_map(|mark| stem.strip_prefix(mark)).unwrap_or(stem);
        self.ops.contains(kind) || kind.strip_suffix("_grad").is_some_and(|kind| self.ops.contains(kind))
    }

    fn is_of_compiler(&self, stem: &str) -> bool {
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let mut words = stem.split(['_', '-']).peekable();
        words.peek().is_some_and(|first| !is_number(first))
            && words.all(|word| !word.is_empty() && (is_number(word) || self.compiler.contains(word)))
    }
}

/// Whether Vramline itself writes this label or reason.
pub(super) fn is_own_sentence(text: &str) -> bool {
    let mut shown = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            shown.push(letter);
            continue;
        }
        // A number with a decimal point counts as one number.
        let mut rest = letters.clone();
        while rest.next_if(|next| next.is_ascii_digit() || *next == '.').is_some() {}
        letters = rest;
        shown.push('#');
    }
    SENTENCES.contains(&text) || SENTENCES.contains(&shown.as_str())
}

/// A name such as `reduce_max.12.3` or `kernel:0` without the numbers that compilers and frameworks append.
fn without_tail(text: &str) -> &str {
    let mut stem = text;
    while let Some((before, number)) = stem.rsplit_once(['.', ':']) {
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        stem = before;
    }
    without_number(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frameworks_name_is_public() {
        let words = Words::default();
        for leaf in [
            "MatMul",
            "MatMul_3",
            "_MklNativeConv2DBackpropInput_1",
            "loop_add_subtract_fusion.12",
            "reduce_max.12.3",
            "cudnn-conv-bw-filter",
            "kernel:0",
            "dot_general",
        ] {
            assert!(words.is_leaf(leaf), "{leaf}");
        }
        for leaf in ["customers", "MatMulSecret", "secret_add", "3", "a_b_c", ""] {
            assert!(!words.is_leaf(leaf), "{leaf}");
        }
        assert!(words.is_scope("while_1") && words.is_scope("MatMul_grad") && words.is_scope("while_grad"));
        assert!(!words.is_scope("dense") && !words.is_scope("concatenate") && !words.is_scope("encoder_1"));
        assert!(words.is_function("_threefry_seed") && words.is_function("<lambda>"));
        assert!(!words.is_function("step") && !words.is_function("customer"));
        for pool in
            ["GPU_0_bfc", "bfc_cpu_allocator_for_gpu", "TPU_0(process=0,(0,0,0,0))", "cuda:1", "mklcpu"]
        {
            assert!(words.is_pool(pool), "{pool}");
        }
        assert!(!words.is_pool("GPU_0_secret") && !words.is_pool("jit_step temporaries"));
        assert!(words.is_pool("") && words.is_pool("0") && !words.is_pool("192.168.0.1"));
        assert!(words.is_of_torch("ConvolutionBackward0") && words.is_of_torch("at::_ops::empty::call"));
        assert!(!words.is_of_torch("SecretBackward") && !words.is_of_torch("at::native::x(customer)"));
    }

    #[test]
    fn own_sentences_are_known_with_any_numbers() {
        assert!(is_own_sentence("written: 5 steps in 1.1 s, 0.5 MB, 0.1 MB a step, in 0.1 s"));
        let written = "trace written: 5 steps in 1.1 s; 0.5 MB (0.1 MB per step), written in 0.1 s; at most 3.0 MB of host memory";
        assert!(is_own_sentence(written) && is_own_sentence("tensorflow: trace started"));
        assert!(is_own_sentence("limit of GPU:0: 1 of 2 bytes") && is_own_sentence("exit"));
        assert!(!is_own_sentence("stops: customer") && !is_own_sentence("after training"));
    }
}
